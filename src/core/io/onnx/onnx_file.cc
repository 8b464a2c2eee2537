#include "io/onnx/onnx_file.h"

#include <cstdint>

#include "base/check.h"
#include "io/protobuf.h"
#include "penstock/version.h"

namespace penstock::io {

namespace {

// Numbers of fields: onnx/onnx.proto3. Version 8 of the format goes with opset 17.
namespace model_field {
constexpr int format = 1, producer = 2, producer_version = 3, graph = 7, opset = 8, metadata = 14;
}
constexpr std::int64_t onnx_format = 8;
constexpr int opset_field_domain = 1, opset_field_version = 2, entry_field_key = 1, entry_field_value = 2;
// Messages of Protocol Buffers are no longer than this.
constexpr std::size_t longest_message = 0x7fffffff;

}  // namespace

std::string onnx_file(const OnnxGraph& graph, const Metadata& metadata) {
  ProtobufMessage model;
  model.integer(model_field::format, onnx_format);
  model.bytes(model_field::producer, "penstock").bytes(model_field::producer_version, PENSTOCK_VERSION);
  model.bytes(model_field::graph, graph.encoded("penstock"));
  model.message(model_field::opset, ProtobufMessage().integer(opset_field_version, OnnxModel::opset));
  if (graph.needs_onnxruntime()) {
    model.message(model_field::opset,
                  ProtobufMessage().bytes(opset_field_domain, kOnnxRuntime).integer(opset_field_version, 1));
  }
  for (const auto& [key, value] : metadata) {
    model.message(model_field::metadata, ProtobufMessage().bytes(entry_field_key, key).bytes(entry_field_value, value));
  }
  const std::size_t size = model.encoded().size();
  if (size > longest_message) {
    fail(ErrorCode::unsupported, "an ONNX file is smaller than 2 GiB; that of this model would have {} bytes", size);
  }
  return model.encoded();
}

}  // namespace penstock::io
