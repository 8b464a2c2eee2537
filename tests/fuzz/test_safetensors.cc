#include <cstdint>
#include <cstring>

#include "fuzz/damage.h"

namespace penstock::test {
namespace {

/// Mostly with the length that the header has now, because otherwise few inputs would get past the length.
std::string with_length(const std::string& damaged, Random& random) {
  const auto end = damaged.rfind('}');
  std::uint64_t length = end == damaged.npos ? damaged.size() : end + 1;
  if (random.below(16) == 0) length = random.bits() >> random.below(64);
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + damaged;
}

TEST(Fuzz, DamagedSafetensors) {
  const std::string data(24, '\1');
  feed_damaged({R"({"__metadata__":{"cell":"lstm","spec":"{\"a\": [1, 2]}"},)"
                R"("w":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
                R"("b":{"dtype":"F64","shape":[],"data_offsets":[16,24]}})" +
                    data,
                R"({"b":{"dtype":"U8","shape":[8],"data_offsets":[16,24]},"e":{"dtype":"I64","shape":[0,9],)"
                R"("data_offsets":[0,0]},"h":{"dtype":"BF16","shape":[2,4],"data_offsets":[0,16]}})" +
                    data,
                "{}"},
               {"0",
                "-1",
                "1e3",
                "18446744073709551615",
                "9223372036854775807",
                "4294967296",
                "[",
                "]",
                "{",
                "}",
                "[[",
                "\"",
                ",",
                ":",
                "null",
                "\"F32\"",
                "\"BOOL\"",
                "\"shape\"",
                "\"__metadata__\":{",
                "\\u0000",
                "\\ud800",
                "\xff",
                "[24,24]",
                "[0,0]"},
               with_length);
}

}  // namespace
}  // namespace penstock::test
