#include <cstdint>

#include "base/check.h"
#include "fuzz/refusal.h"
#include "io/onnx/read/builder.h"
#include "network/check.h"

using namespace penstock;

/// An ONNX file that the reader accepts must become a network without contradictions.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string content(reinterpret_cast<const char*>(data), size);
  test::accepted([&] {
    try {
      io::onnx::Source source{"fuzz", "", 0};
      const auto built = io::onnx::build_network(io::onnx::decode_model(content, source.name), source, {});
      const network::Status status = network::check(built.network);
      test::check(status.ok(), "a network that contradicts itself");
    } catch (const Error& error) {
      if (error.code() == ErrorCode::unsupported) fail(ErrorCode::bad_input, "{}", error.what());
      throw;
    }
  });
  return 0;
}
