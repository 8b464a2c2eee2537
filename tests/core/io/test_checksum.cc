// The checksum in files: known values, and the place in a file that holds it.

#include "penstock/checksum.h"

#include <gtest/gtest.h>

#include <array>

#include "support/expect_error.h"

namespace penstock {
namespace {

std::string of(std::string_view text) {
  const std::array<std::span<const std::byte>, 1> parts = {std::as_bytes(std::span(text))};
  return checksum_of(parts);
}

TEST(Checksum, IsThatOfXxh3) {
  EXPECT_EQ(of(""), "2d06800538d394c2");
  const std::string_view text = "what is written";
  const std::array<std::span<const std::byte>, 3> parts = {
      std::as_bytes(std::span(text.substr(0, 4))), {}, std::as_bytes(std::span(text.substr(4)))};
  EXPECT_EQ(checksum_of(parts), of(text)) << "borders of parts do not count";
}

TEST(Checksum, LeavesItsOwnPlaceOut) {
  const std::string before = "{\"checksum\":\"", behind = "\",\"more\":1}";
  const std::string sum = of(before + "0000000000000000" + behind);
  const std::string file = before + sum + behind;
  EXPECT_EQ(checksum_of(file, before.size()), sum);
  for (std::size_t bit = 0; bit < 8 * file.size(); ++bit) {
    std::string damaged = file;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    const std::string carried = damaged.substr(before.size(), checksum_digits);
    EXPECT_NE(checksum_of(damaged, before.size()), carried) << "bit " << bit;
  }
  test::expect_error(ErrorCode::invalid_argument, "place must leave 16 of 15 bytes for a checksum, not be 0",
                     [] { checksum_of("0123456789abcde", 0); });
}

}  // namespace
}  // namespace penstock
