#include <cstdint>

#include "fuzz/refusal.h"
#include "fuzz/sealed.h"
#include "io/safetensors.h"

using namespace penstock;

/// Tensors that the reader accepts must lie inside the file, cover it, and be found under their names.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string content(reinterpret_cast<const char*>(data), size);
  test::accepted([&] {
    const auto file = io::SafetensorsFile::parse(content, "fuzz");
    Index end = 0;
    for (const auto& tensor : file.tensors()) {
      test::check(tensor.offset == end, "a gap or an overlap");
      end += tensor.bytes;
      Index bytes = io::size_of(tensor.dtype);
      for (const Index dimension : tensor.shape) bytes *= dimension;
      test::check(bytes == tensor.bytes, "a shape that disagrees with the bytes");
      test::check(file.find(tensor.name) == &tensor, "a tensor that is not found");
      unsigned sum = 0;
      for (const std::byte byte : file.bytes(tensor)) sum += std::to_integer<unsigned>(byte);
      test::check(sum <= 255u * static_cast<std::uint64_t>(tensor.bytes), "bytes that are none");
    }
    test::check(end <= static_cast<Index>(size), "more data than there is file");
  });
  return 0;
}
