#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "fuzz/damage.h"
#include "penstock/checksum.h"
#include "penstock/quantize.h"
#include "support/temporary_folder.h"

namespace penstock::test {
namespace {

std::string file_of(const Model& model) {
  const TemporaryFolder folder;
  model.save(folder.path("model"));
  return folder.read("model");
}

/// Mostly with the length of the header and the checksum that the file has now; sometimes with a weight of -128.
std::string with_checksum(std::string file, Random& random) {
  constexpr std::size_t first = sizeof(std::uint64_t);
  const std::size_t end = std::min(file.find_first_not_of(' ', file.rfind("}}") + 2), file.size());
  if (file.size() < first || end < first) return file;
  if (random.below(4) != 0) {
    const std::uint64_t length = end - first;
    std::memcpy(file.data(), &length, first);
  }
  if (end < file.size() && random.below(4) == 0) {
    file[end + static_cast<std::size_t>(random.below(static_cast<Index>(file.size() - end)))] = '\x80';
  }
  const std::size_t place = checksum_place(file, "penstock.checksum");
  if (place != file.npos && place + checksum_digits <= file.size() && random.below(16) != 0) {
    file.replace(place, checksum_digits, checksum_of(file, place));
  }
  return file;
}

TEST(Fuzz, DamagedModels) {
  DataDescription data;
  data.vocabulary = 5;
  const Model floats({.cell = "lstm", .width = 3, .blocks = 1, .feed_forward = 1.0}, data, 7);
  const std::vector<std::string> head = {"head"};
  feed_damaged({file_of(floats.with_int8(int8_layers(floats))), file_of(floats.with_int8(head)), file_of(floats)},
               {"\\\"int8\\\":[\\\"head\\\",\\\"head\\\"]",
                "\\\"int8\\\":[]",
                "\\\"int8\\\":7",
                "\\\"blocks.0.recurrent\\\"",
                "\"I8\"",
                "\"F32\"",
                "\"head.weight.scale\"",
                "head",
                "[",
                "]",
                "{",
                "}",
                ",",
                "0",
                "-1",
                "1e3",
                "65536",
                "null",
                "\x80\x80\x80\x80",
                std::string_view("\0\0\xc0\x7f", 4),
                std::string_view("\0\0\x80\xbf", 4)},
               with_checksum);
}

}  // namespace
}  // namespace penstock::test
