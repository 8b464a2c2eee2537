#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
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

/// Calls a reader, which may refuse a file for what it is or for what this library lacks.
void read(const std::function<void()>& reader) {
  test::accepted([&] {
    try {
      reader();
    } catch (const Error& error) {
      if (error.code() == ErrorCode::unsupported || error.code() == ErrorCode::invalid_argument)
        fail(ErrorCode::bad_input, "{}", error.what());
      throw;
    }
  });
}

/// Weights have the elements of their shapes.
void check_weights(const OnnxLayer& layer) {
  for (const OnnxLayer::Weight& weight : layer.weights) {
    Index bytes = weight.type == "f64" ? 8 : 4;
    for (const Index extent : weight.shape) bytes *= extent;
    test::check(static_cast<Index>(weight.values.size()) == bytes, "weights that do not fit their shape");
  }
}

/// An ONNX file that the reader accepts must become a network without contradictions, which runs or is refused. The
/// reader of its layers alone must do as well.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string content(reinterpret_cast<const char*>(data), size);
  read([&] {
    const auto made = std::make_shared<const network::Network>(io::onnx::import_network(content, {"fuzz", "", 0}, {}));
    test::check(network::check(*made).ok(), "a network that contradicts itself");
    prepare(made);
  });
  for (const std::optional<std::string>& name :
       {std::optional<std::string>(), std::optional<std::string>("the LSTM")}) {
    read([&] { std::ranges::for_each(io::onnx::read_layers(content, {"fuzz", "", 0}, name), check_weights); });
  }
  return 0;
}
