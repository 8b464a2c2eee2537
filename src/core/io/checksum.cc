#include "penstock/checksum.h"

#define XXH_INLINE_ALL
// Its functions insist on being inlined where they are called through pointers, which -Og does not do.
#define XXH_NO_INLINE_HINTS 1
#include <xxhash.h>

#include <array>

#include "base/check.h"

namespace penstock {

std::string checksum_of(std::span<const std::span<const std::byte>> parts) {
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  for (const std::span<const std::byte> part : parts) XXH3_64bits_update(&state, part.data(), part.size());
  return fmt::format("{:016x}", XXH3_64bits_digest(&state));
}

std::string checksum_of(std::string_view content, std::size_t place) {
  require(place <= content.size() && content.size() - place >= checksum_digits,
          "place must leave {} of {} bytes for a checksum, not be {}", checksum_digits, content.size(), place);
  static constexpr std::string_view zeros = "0000000000000000";
  static_assert(zeros.size() == checksum_digits);
  const std::array<std::span<const std::byte>, 3> parts = {
      std::as_bytes(std::span(content.substr(0, place))), std::as_bytes(std::span(zeros)),
      std::as_bytes(std::span(content.substr(place + checksum_digits)))};
  return checksum_of(parts);
}

std::size_t checksum_place(std::string_view json, std::string_view name) {
  const std::string before = fmt::format("\"{}\":\"", name);
  const std::size_t place = json.find(before);
  if (place == json.npos || json.size() - place - before.size() < checksum_digits) return json.npos;
  return place + before.size();
}

}  // namespace penstock
