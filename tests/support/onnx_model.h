#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/protobuf.h"
#include "penstock/types.h"

/// ONNX files for tests, message by message.
namespace penstock::test::onnx {

using io::ProtobufMessage;
using Names = std::vector<std::string>;

constexpr int kFloat = 1, kInt8 = 3, kInt64 = 7, kBool = 9;

inline ProtobufMessage attribute(const std::string& name, Index value) {
  return ProtobufMessage().bytes(1, name).integer(3, value).integer(20, 2);
}
inline ProtobufMessage attribute(const std::string& name, int value) { return attribute(name, Index{value}); }
inline ProtobufMessage attribute(const std::string& name, float value) {
  return ProtobufMessage().bytes(1, name).number(2, value).integer(20, 1);
}
inline ProtobufMessage attribute(const std::string& name, const char* value) {
  return ProtobufMessage().bytes(1, name).bytes(4, value).integer(20, 3);
}
inline ProtobufMessage attribute(const std::string& name, const std::vector<Index>& values) {
  ProtobufMessage message;
  message.bytes(1, name);
  for (const Index value : values) message.integer(8, value);
  return message.integer(20, 7);
}
inline ProtobufMessage attribute(const std::string& name, const Names& values) {
  ProtobufMessage message;
  message.bytes(1, name);
  for (const std::string& value : values) message.bytes(9, value);
  return message.integer(20, 8);
}
/// A tensor or a graph.
inline ProtobufMessage attribute(const std::string& name, const ProtobufMessage& value, bool is_graph) {
  return ProtobufMessage().bytes(1, name).message(is_graph ? 6 : 5, value).integer(20, is_graph ? 5 : 4);
}

inline ProtobufMessage tensor(const std::string& name, const std::vector<Index>& shape,
                              const std::vector<float>& values) {
  ProtobufMessage message;
  for (const Index extent : shape) message.integer(1, extent);
  message.integer(2, kFloat).bytes(8, name);
  for (const float value : values) message.number(4, value);
  return message;
}
inline ProtobufMessage integers(const std::string& name, const std::vector<Index>& shape,
                                const std::vector<Index>& values, int type = kInt64) {
  ProtobufMessage message;
  for (const Index extent : shape) message.integer(1, extent);
  message.integer(2, type).bytes(8, name);
  for (const Index value : values) message.integer(type == kInt64 ? 7 : 5, value);
  return message;
}

inline ProtobufMessage node(const std::string& op, const Names& inputs, const Names& outputs,
                            const std::vector<ProtobufMessage>& attributes = {}, const std::string& domain = "") {
  ProtobufMessage message;
  for (const std::string& name : inputs) message.bytes(1, name);
  for (const std::string& name : outputs) message.bytes(2, name);
  message.bytes(3, "the " + op).bytes(4, op);
  for (const ProtobufMessage& each : attributes) message.message(5, each);
  if (!domain.empty()) message.bytes(7, domain);
  return message;
}

/// An input or output; negative extents are free, and named by their number.
inline ProtobufMessage value(const std::string& name, const std::vector<Index>& shape, int type = kFloat) {
  ProtobufMessage extents;
  for (const Index extent : shape) {
    ProtobufMessage each;
    extent < 0 ? each.bytes(2, "free" + std::to_string(-extent)) : each.integer(1, extent);
    extents.message(1, each);
  }
  ProtobufMessage tensor_type, whole;
  tensor_type.integer(1, type).message(2, extents);
  whole.message(1, tensor_type);
  return ProtobufMessage().bytes(1, name).message(2, whole);
}

struct Graph {
  std::vector<ProtobufMessage> inputs, nodes, tensors, outputs;

  ProtobufMessage message() const {
    ProtobufMessage all;
    for (const ProtobufMessage& each : nodes) all.message(1, each);
    all.bytes(2, "graph");
    for (const ProtobufMessage& each : tensors) all.message(5, each);
    for (const ProtobufMessage& each : inputs) all.message(11, each);
    for (const ProtobufMessage& each : outputs) all.message(12, each);
    return all;
  }
};

inline ProtobufMessage opset(Index version, const std::string& domain = "") {
  return ProtobufMessage().bytes(1, domain).integer(2, version);
}

/// Returns the bytes of a file.
inline std::string model(const Graph& graph, Index version = 17, const std::vector<ProtobufMessage>& functions = {}) {
  ProtobufMessage message;
  message.integer(1, 8).message(7, graph.message()).message(8, opset(version));
  for (const ProtobufMessage& each : functions) message.message(25, each);
  return message.encoded();
}

}  // namespace penstock::test::onnx
