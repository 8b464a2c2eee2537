#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/check.h"
#include "fuzz/refusal.h"
#include "io/onnx/read/import.h"
#include "network/check_file.h"
#include "network/session.h"

using namespace penstock;

namespace {

/// Prepares a network for free extents of 2, and runs it if that succeeds.
void prepare(const std::shared_ptr<const network::Network>& made) {
  std::vector<network::Shape> shapes;
  Index elements = 1;
  for (const int input : made->inputs) {
    shapes.push_back(made->values[static_cast<std::size_t>(input)].shape);
    for (Index& extent : shapes.back()) {
      extent = extent < 0 ? 2 : extent;
      if (extent > 64 || (elements *= std::max<Index>(extent, 1)) > 4096) return;
    }
  }
  std::shared_ptr<const network::Program> program;
  std::unique_ptr<network::Session> session;
  if (!network::Program::prepare(made, shapes, program).ok() || program->workspace_bytes() > 1 << 20) return;
  if (network::Session::open(program, nullptr, session).ok()) session->run();
}

}  // namespace

/// An ONNX file that the reader accepts must become a network without contradictions, which runs or is refused.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string content(reinterpret_cast<const char*>(data), size);
  test::accepted([&] {
    try {
      const auto made =
          std::make_shared<const network::Network>(io::onnx::import_network(content, {"fuzz", "", 0}, {}));
      test::check(network::check(*made).ok(), "a network that contradicts itself");
      prepare(made);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::unsupported || error.code() == ErrorCode::invalid_argument)
        fail(ErrorCode::bad_input, "{}", error.what());
      throw;
    }
  });
  return 0;
}
