#include "io/onnx/onnx_graph.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>
#include <stdexcept>

#include "io/protobuf.h"

namespace penstock::io {

namespace {

// Numbers of fields and types: onnx/onnx.proto3, https://github.com/onnx/onnx
namespace attribute_field {
constexpr int name = 1, integer = 3, text = 4, graph = 6, integers = 8, texts = 9, type = 20;
constexpr int type_integer = 2, type_text = 3, type_graph = 5, type_integers = 7, type_texts = 8;
}  // namespace attribute_field
namespace node_field {
constexpr int input = 1, output = 2, name = 3, op = 4, attribute = 5, domain = 7;
}
namespace graph_field {
constexpr int node = 1, name = 2, constant = 5, input = 11, output = 12;
}
namespace tensor_field {
constexpr int extent = 1, type = 2, name = 8, bytes = 9;
}
namespace value_field {
constexpr int name = 1, type = 2, description = 3;
}
namespace type_field {
constexpr int tensor = 1, element = 1, shape = 2, extent = 1, number = 1, symbol = 2;
}
constexpr int type_float = 1, type_uint8 = 2, type_int8 = 3, type_int64 = 7, type_bool = 9, type_double = 11;

int type_number(const std::string& name) {
  return name == "int64" ? type_int64 : name == "double" ? type_double : name == "uint8" ? type_uint8 : type_float;
}

static_assert(std::endian::native == std::endian::little, "raw tensors of ONNX are little-endian");

template <class T>
std::string raw(std::span<const T> values) {
  std::string bytes(values.size_bytes(), '\0');
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

/// An extent is a number, or else the name of one that differs from call to call.
ProtobufMessage extent(const std::string& text) {
  ProtobufMessage result;
  const bool number = std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
  if (number) return result.integer(type_field::number, std::stoll(text));
  return result.bytes(type_field::symbol, text);
}

std::string encoded_value(const OnnxTensor& tensor) {
  ProtobufMessage shape, of_tensor, type, value;
  for (const std::string& text : tensor.shape) shape.message(type_field::extent, extent(text));
  of_tensor.integer(type_field::element, type_number(tensor.type));
  of_tensor.message(type_field::shape, shape);
  type.message(type_field::tensor, of_tensor);
  value.bytes(value_field::name, tensor.name).message(value_field::type, type);
  if (!tensor.description.empty()) value.bytes(value_field::description, tensor.description);
  return value.encoded();
}

void require_size(const std::vector<Index>& shape, std::size_t size) {
  Index count = 1;
  for (const Index n : shape) count *= n;
  if (count != static_cast<Index>(size)) throw std::logic_error("a tensor of another size than its shape");
}

ProtobufMessage attribute(const std::string& name, int type) {
  return ProtobufMessage().bytes(attribute_field::name, name).integer(attribute_field::type, type);
}

}  // namespace

OnnxAttribute::OnnxAttribute(const std::string& name, Index value) {
  encoded_ = attribute(name, attribute_field::type_integer).integer(attribute_field::integer, value).encoded();
}

OnnxAttribute::OnnxAttribute(const std::string& name, const std::string& value) {
  encoded_ = attribute(name, attribute_field::type_text).bytes(attribute_field::text, value).encoded();
}

OnnxAttribute::OnnxAttribute(const std::string& name, const std::vector<Index>& values) {
  ProtobufMessage message = attribute(name, attribute_field::type_integers);
  for (const Index value : values) message.integer(attribute_field::integers, value);
  encoded_ = message.encoded();
}

OnnxAttribute::OnnxAttribute(const std::string& name, const std::vector<std::string>& values) {
  ProtobufMessage message = attribute(name, attribute_field::type_texts);
  for (const std::string& value : values) message.bytes(attribute_field::texts, value);
  encoded_ = message.encoded();
}

OnnxAttribute OnnxAttribute::graph(const std::string& name, const std::string& encoded) {
  OnnxAttribute result;
  result.encoded_ = attribute(name, attribute_field::type_graph).bytes(attribute_field::graph, encoded).encoded();
  return result;
}

std::string OnnxGraph::node(const std::string& op, const std::vector<std::string>& inputs,
                            const OnnxAttributes& attributes) {
  return node(1, op, inputs, attributes).front();
}

std::vector<std::string> OnnxGraph::node(int outputs, const std::string& op, const std::vector<std::string>& inputs,
                                         const OnnxAttributes& attributes) {
  Node node{op, inputs, {}, attributes};
  const int number = made_++;
  for (int i = 0; i < outputs; ++i) {
    node.outputs.push_back(fmt::format("{}{}_{}{}", prefix_, op, number, i == 0 ? "" : fmt::format(".{}", i)));
  }
  nodes_.push_back(node);
  return node.outputs;
}

void OnnxGraph::output(OnnxTensor tensor, const std::string& value) {
  nodes_.push_back({"Identity", {value}, {tensor.name}, {}});
  outputs_.push_back(std::move(tensor));
}

std::string OnnxGraph::constant(const std::string& name, int type, const std::vector<Index>& shape,
                                const std::string& bytes) {
  ProtobufMessage tensor;
  for (const Index n : shape) tensor.integer(tensor_field::extent, n);
  tensor.integer(tensor_field::type, type).bytes(tensor_field::name, name).bytes(tensor_field::bytes, bytes);
  constants_.push_back({name, tensor.encoded()});
  return name;
}

std::string OnnxGraph::scalar(float value) {
  std::string& name = known_constants_[fmt::format("{:a}", value)];
  if (name.empty()) {
    name = constant(fmt::format("{}{}", prefix_, value), type_float, {}, raw(std::span<const float>(&value, 1)));
  }
  return name;
}

std::string OnnxGraph::integers(const std::vector<Index>& values) {
  const std::string text = fmt::format("[{}]", fmt::join(values, ","));
  std::string& name = known_constants_[text];
  if (name.empty()) {
    constexpr std::size_t longest_name = 40;
    const std::vector<std::int64_t> wide(values.begin(), values.end());
    name = constant(prefix_ + (text.size() <= longest_name ? text : fmt::format("integers_{}", made_++)), type_int64,
                    {static_cast<Index>(values.size())}, raw(std::span<const std::int64_t>(wide)));
  }
  return name;
}

std::string OnnxGraph::flags(const std::vector<bool>& values) {
  std::string bytes;
  for (const bool value : values) bytes += value ? '\1' : '\0';
  return constant(fmt::format("{}flags_{}", prefix_, made_++), type_bool, {static_cast<Index>(values.size())}, bytes);
}

std::string OnnxGraph::floats(const std::string& name, const std::vector<Index>& shape, std::span<const float> values) {
  require_size(shape, values.size());
  return constant(free_name(name), type_float, shape, raw(values));
}

std::string OnnxGraph::bytes(const std::string& name, const std::vector<Index>& shape,
                             std::span<const std::int8_t> values) {
  require_size(shape, values.size());
  return constant(free_name(name), type_int8, shape, raw(values));
}

std::string OnnxGraph::byte(std::uint8_t value) {
  std::string& name = known_constants_[fmt::format("byte {}", value)];
  if (name.empty()) {
    name = constant(fmt::format("{}byte_{}", prefix_, value), type_uint8, {},
                    raw(std::span<const std::uint8_t>(&value, 1)));
  }
  return name;
}

std::string OnnxGraph::doubles(const std::string& name, std::span<const double> values) {
  return constant(free_name(name), type_double, {static_cast<Index>(values.size())}, raw(values));
}

std::string OnnxGraph::cast(const std::string& value, const std::string& type) {
  return node("Cast", {value}, {{"to", Index{type_number(type)}}});
}

std::string OnnxGraph::free_name(const std::string& name) {
  const std::string full = prefix_ + name;
  const auto taken = [&](const Constant& each) { return each.name == full; };
  return std::ranges::any_of(constants_, taken) ? fmt::format("{}_{}", full, made_++) : full;
}

bool OnnxGraph::needs_onnxruntime() const {
  return std::ranges::any_of(nodes_, [](const Node& node) { return node.op.starts_with(kOnnxRuntime); });
}

std::string OnnxGraph::encoded(const std::string& name) const {
  std::set<std::string> needed;
  for (const OnnxTensor& tensor : outputs_) needed.insert(tensor.name);
  std::vector<const Node*> kept;
  // clang 14 knows no views of this library. NOLINTNEXTLINE(modernize-loop-convert)
  for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) {
    const auto is_needed = [&](const std::string& output) { return needed.contains(output); };
    if (std::ranges::none_of(node->outputs, is_needed)) continue;
    needed.insert(node->inputs.begin(), node->inputs.end());
    kept.push_back(&*node);
  }
  ProtobufMessage graph;
  // NOLINTNEXTLINE(modernize-loop-convert)
  for (auto node = kept.rbegin(); node != kept.rend(); ++node) {
    ProtobufMessage message;
    for (const std::string& input : (*node)->inputs) message.bytes(node_field::input, input);
    for (const std::string& output : (*node)->outputs) message.bytes(node_field::output, output);
    message.bytes(node_field::name, (*node)->outputs.front());
    const std::string& op = (*node)->op;
    if (op.starts_with(kOnnxRuntime)) {
      message.bytes(node_field::op, op.substr(kOnnxRuntime.size() + 1)).bytes(node_field::domain, kOnnxRuntime);
    } else {
      message.bytes(node_field::op, op);
    }
    for (const OnnxAttribute& attribute : (*node)->attributes)
      message.bytes(node_field::attribute, attribute.encoded());
    graph.message(graph_field::node, message);
  }
  graph.bytes(graph_field::name, name);
  for (const Constant& each : constants_) {
    if (needed.contains(each.name)) graph.bytes(graph_field::constant, each.encoded);
  }
  for (const OnnxTensor& tensor : inputs_) graph.bytes(graph_field::input, encoded_value(tensor));
  for (const OnnxTensor& tensor : outputs_) graph.bytes(graph_field::output, encoded_value(tensor));
  return graph.encoded();
}

}  // namespace penstock::io
