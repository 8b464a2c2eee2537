// Instead of io/onnx in builds with -D PENSTOCK_ONNX=OFF.

#include "penstock/onnx.h"

#include "base/check.h"
#include "io/onnx/read/import.h"

namespace penstock {
namespace {

[[noreturn]] void no_onnx_files() {
  fail(ErrorCode::unsupported,
       "this build of Penstock reads and writes no ONNX files: build it without -D PENSTOCK_ONNX=OFF");
}

}  // namespace

namespace io::onnx {

// NOLINTBEGIN(performance-unnecessary-value-param): what is in its place keeps the source
network::Network import_network(std::string_view, Source, const NetworkImport&) { no_onnx_files(); }
std::vector<OnnxLayer> read_layers(std::string_view, Source, const std::optional<std::string>&) { no_onnx_files(); }
// NOLINTEND(performance-unnecessary-value-param)

}  // namespace io::onnx

OnnxModel to_onnx(const Model&, const OnnxOptions&) { no_onnx_files(); }
OnnxModel save_onnx(const Model&, const std::string&, const OnnxOptions&) { no_onnx_files(); }
OnnxModel to_onnx(const Recurrent<float>&) { no_onnx_files(); }
OnnxModel save_onnx(const Recurrent<float>&, const std::string&) { no_onnx_files(); }

}  // namespace penstock
