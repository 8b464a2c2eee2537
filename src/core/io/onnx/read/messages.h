#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "penstock/types.h"

/// The messages of ONNX files, decoded. https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
///
/// Texts and raw values are views into the file's content. Numbers of messages and the depth of graphs are bounded.
namespace penstock::io::onnx {

/// Numbers of element types (TensorProto.DataType).
enum ElementType : std::int64_t {
  kFloat = 1,
  kUint8 = 2,
  kInt8 = 3,
  kUint16 = 4,
  kInt16 = 5,
  kInt32 = 6,
  kInt64 = 7,
  kString = 8,
  kBool = 9,
  kFloat16 = 10,
  kDouble = 11,
  kUint32 = 12,
  kUint64 = 13,
  kBfloat16 = 16,
};

struct TensorMessage {
  std::string_view name;
  std::int64_t type = 0;
  std::vector<Index> dims;
  bool has_raw = false, external = false, strings = false, segmented = false;
  std::string_view raw;
  std::vector<std::int64_t> integers;  ///< int32_data, int64_data or uint64_data
  std::vector<float> floats;
  std::vector<double> doubles;
  std::vector<std::pair<std::string_view, std::string_view>> places;  ///< external_data
};

struct GraphMessage;

struct AttributeMessage {
  std::string_view name, reference;  ///< `reference`: the attribute of the function around the node, or empty.
  std::int64_t type = 0;
  float f = 0;
  std::int64_t i = 0;
  std::string_view s;
  std::vector<TensorMessage> tensors;
  std::vector<GraphMessage> graphs;
  std::vector<float> floats;
  std::vector<std::int64_t> ints;
  std::vector<std::string_view> strings;
  bool sparse = false;

  /// Kinds of attributes (AttributeProto.AttributeType).
  enum Kind : std::int64_t {
    kFloat = 1,
    kInt = 2,
    kString = 3,
    kTensor = 4,
    kGraph = 5,
    kFloats = 6,
    kInts = 7,
    kStrings = 8,
  };
};

struct NodeMessage {
  std::string_view op, name, domain;
  std::vector<std::string_view> inputs, outputs;
  std::vector<AttributeMessage> attributes;
};

/// An input or output of a graph.
struct ValueMessage {
  struct Extent {
    Index size = -1;  ///< -1: free.
    std::string_view name;
  };
  std::string_view name;
  bool is_tensor = false, has_shape = false;
  std::int64_t type = 0;
  std::vector<Extent> shape;
};

struct GraphMessage {
  std::vector<NodeMessage> nodes;
  std::vector<TensorMessage> tensors;
  std::vector<ValueMessage> inputs, outputs;
  bool sparse = false;
};

struct FunctionMessage {
  std::string_view name, domain;
  std::vector<std::string_view> inputs, outputs;
  std::vector<NodeMessage> nodes;
  std::vector<AttributeMessage> defaults;
  Index opset = 0;  ///< Of ONNX's own operators; 0: that of the model.
};

struct ModelMessage {
  Index ir_version = 0, opset = 0;  ///< `opset`: of ONNX's own operators; 0: none.
  std::string_view producer;
  GraphMessage graph;
  bool has_graph = false;
  std::vector<FunctionMessage> functions;
};

/// Returns a name of a file for a message: as it is if it has letters, digits and ./:_- alone, otherwise quoted.
std::string shown(std::string_view name);

/// "LSTM 'rnn'", or by its first output where it has no name.
std::string title_of(const NodeMessage& node);

/// Decodes a file. `content` must outlive the result; `source` names it in messages. Throws Error(bad_input).
ModelMessage decode_model(std::string_view content, const std::string& source);

}  // namespace penstock::io::onnx
