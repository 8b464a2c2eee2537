#include <cstdint>

#include "data/data_file.h"
#include "fuzz/refusal.h"

using namespace penstock;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::uint64_t limit = std::uint64_t{1} << 20;
  const std::string_view compressed(reinterpret_cast<const char*>(data), size);
  test::accepted(
      [&] { test::check(io::decompress(compressed, "fuzz", limit).size() <= limit, "more than the limit"); });
  return 0;
}
