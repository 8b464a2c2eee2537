#include "io/network_int8.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <utility>

#include "base/aligned.h"
#include "base/check.h"
#include "nn/model/choose_int8_layers.h"
#include "nn/model/quantize.h"

namespace penstock::io {

namespace {

using network::Constant;
using network::Network;
using network::Node;
using network::Shape;
using network::Type;

const Constant* constant_of(const Network& network, int value) {
  if (value < 0) return nullptr;
  const int number = network.values[static_cast<std::size_t>(value)].constant;
  return number < 0 ? nullptr : &network.constants[static_cast<std::size_t>(number)];
}

/// A matrix that a node reads.
struct Matrix {
  std::size_t read;
  Index axis;  ///< Of the outputs; a Recurrent's directions are outputs too.
  std::size_t axes;
  bool or_more = false;  ///< Axes.
};

/// Whether a constant can be rounded. Nodes of branches that are never taken can read anything.
bool has_form(const Constant& weight, const Matrix& matrix) {
  const std::size_t axes = weight.shape.size();
  if (weight.type != Type::f32 || weight.bytes.empty() || axes < matrix.axes ||
      (axes > matrix.axes && !matrix.or_more)) {
    return false;
  }
  const std::span values(reinterpret_cast<const float*>(weight.bytes.data()), weight.bytes.size() / sizeof(float));
  return std::ranges::all_of(values, [](float each) { return std::isfinite(each); });
}

std::vector<Matrix> matrices_of(const Network& network, const Node& node) {
  std::vector<Matrix> wanted;
  if (node.op == "Recurrent") wanted = {{network::kRecurrentWeightIh, 0, 3}, {network::kRecurrentWeightHh, 0, 3}};
  if (node.op == "Conv") wanted = {{1, 0, 3, true}};
  if (node.op == "MatMul") wanted = {{1, 1, 2}};
  if (node.op == "Gemm") {
    const network::Attribute* const turned = node.find("transB");
    wanted = {{1, turned != nullptr && turned->integers == std::vector<Index>{1} ? 0 : 1, 2}};
  }
  std::vector<Matrix> found;
  for (const Matrix& each : wanted) {
    const Constant* const weight =
        each.read < node.reads.size() ? constant_of(network, node.reads[each.read]) : nullptr;
    if (weight != nullptr && has_form(*weight, each)) found.push_back(each);
  }
  return found;
}

/// The nodes whose inputs become bytes, too: kinds and sizes at which products of bytes are faster.
struct RoundedForm {
  std::string op;  ///< Empty: none.
  int bias = -1;
  bool turned = false;  ///< The weights of a product are [outputs, inputs].
};

RoundedForm rounded_form_of(const Network& network, const Node& node) {
  const auto integer = [&](std::string_view name, Index otherwise) {
    const network::Attribute* const found = node.find(name);
    return found == nullptr || found->integers.size() != 1 ? otherwise : found->integers[0];
  };
  const auto is_number = [&](std::string_view name) {  // given, and not 1
    const network::Attribute* const found = node.find(name);
    return found != nullptr && found->numbers != std::vector<float>{1.0f};
  };
  if (node.op != "Conv" && node.op != "MatMul" && node.op != "Gemm") return {};
  const Shape& shape = constant_of(network, node.reads[1])->shape;
  const bool turned = node.op == "Gemm" && integer("transB", 0) != 0;
  const Index outputs = shape[node.op == "Conv" || turned ? 0 : 1], inner = network::elements(shape) / outputs;
  RoundedForm form{node.op == "Conv" ? "RoundedConv" : "RoundedMatMul", node.reads.size() > 2 ? node.reads[2] : -1,
                   turned};
  if (form.bias >= 0) {
    const Constant* const bias = constant_of(network, form.bias);
    if (bias == nullptr || bias->type != Type::f32 || bias->shape != Shape{outputs}) return {};
  }
  if (node.op == "Conv" && integer("group", 1) != 1) return {};
  if (node.op == "Gemm" && (integer("transA", 0) != 0 || is_number("alpha") || is_number("beta"))) return {};
  // Rounding takes time for each input, and what follows for each output; the rest is the product of both.
  constexpr Index least = 36;
  return outputs * inner >= least * (outputs + inner) ? form : RoundedForm();
}

/// Names the nodes that have such matrices, bodies included. The order depends on the structure alone.
class NodeNames {
 public:
  explicit NodeNames(const Network& network) { count(network); }

  /// Returns the name of the next node; empty if it has no matrices.
  std::string next(const Node& node, const std::vector<Matrix>& matrices) {
    ++position_;
    if (matrices.empty()) return {};
    if (!node.name.empty() && taken_.insert(node.name).second) return node.name;
    std::string name = fmt::format("{} {}", node.op, position_);
    while (used_.contains(name)) name += '\'';  // a node that has it may follow
    return name;
  }

 private:
  void count(const Network& network) {
    for (const Node& node : network.nodes) {
      used_.insert(node.name);
      for (const Network& body : node.bodies) count(body);
    }
  }

  std::set<std::string> used_, taken_;
  int position_ = 0;
};

void collect(const Network& network, NodeNames& names, std::vector<std::string>& all) {
  for (const Node& node : network.nodes) {
    all.push_back(names.next(node, matrices_of(network, node)));
    for (const Network& body : node.bodies) collect(body, names, all);
  }
}

template <class T>
Constant new_constant(Type type, Shape shape, std::span<const T> values) {
  const auto bytes = std::as_bytes(values);
  const auto memory = std::make_shared<const AlignedVector<std::byte>>(bytes.begin(), bytes.end());
  return {type, std::move(shape), {memory->data(), memory->size()}, memory};
}

int add_value(Network& network, std::string name, Constant constant) {
  network::Value value{std::move(name), constant.type};
  value.constant = static_cast<int>(network.constants.size());
  network.constants.push_back(std::move(constant));
  network.values.push_back(std::move(value));
  return static_cast<int>(network.values.size()) - 1;
}

int add_value(Network& network, std::string name) {
  network.values.push_back({std::move(name), Type::f32});
  return static_cast<int>(network.values.size()) - 1;
}

/// A matrix of bytes and the scales of its outputs.
struct RoundedMatrix {
  int matrix, scale;
};

RoundedMatrix round_matrix(Network& network, const Constant& weight, Index axis, bool directions,
                           const std::string& name) {
  const auto* const values = reinterpret_cast<const float*>(weight.bytes.data());
  const auto count = static_cast<Index>(weight.bytes.size() / sizeof(float));
  const Index outputs = directions ? weight.shape[0] * weight.shape[1] : weight.shape[static_cast<std::size_t>(axis)];
  const Index inner = count / outputs, of_output = axis == 0 ? inner : 1, of_input = axis == 0 ? 1 : outputs;
  std::vector<float> row(static_cast<std::size_t>(inner)), scales;
  std::vector<std::int8_t> rounded(row.size()), all(static_cast<std::size_t>(count));
  for (Index o = 0; o < outputs; ++o) {
    for (Index i = 0; i < inner; ++i) row[i] = values[o * of_output + i * of_input];
    scales.push_back(nn::round_row(row, rounded));
    for (Index i = 0; i < inner; ++i) all[o * of_output + i * of_input] = rounded[i];
  }
  const Shape shape = directions ? Shape{outputs, inner} : weight.shape;
  const int matrix = add_value(network, name + ".int8", new_constant<std::int8_t>(Type::i8, shape, all));
  return {matrix, add_value(network, name + ".scale", new_constant<float>(Type::f32, {outputs}, scales))};
}

/// Rounds a matrix, and adds the nodes that make floats of it in front of its reader. Returns their result.
int add_matrix(Network& network, const Constant& weight, Index axis, bool directions, const std::string& name,
               std::vector<Node>& nodes) {
  const auto [matrix, scale] = round_matrix(network, weight, axis, directions, name);
  const int floats = add_value(network, name + ".floats");
  nodes.push_back({"DequantizeLinear", name, {matrix, scale}, {floats}, {{"axis", {axis}}}});
  if (!directions) return floats;
  const int extents = add_value(network, name + ".shape", new_constant<Index>(Type::i64, {3}, weight.shape));
  const int shaped = add_value(network, name + ".matrices");
  nodes.push_back({"Reshape", name, {floats, extents}, {shaped}});
  return shaped;
}

/// Forgets the constants that no node and no output reads any more.
void drop_unread(Network& network) {
  std::vector<bool> read(network.values.size());
  const auto mark = [&](const std::vector<int>& values) {
    for (const int value : values) {
      if (value >= 0) read[static_cast<std::size_t>(value)] = true;
    }
  };
  mark(network.outputs);
  for (const Node& node : network.nodes) mark(node.reads);
  std::vector<int> place(network.constants.size(), -1);
  std::vector<Constant> kept;
  for (std::size_t i = 0; i < network.values.size(); ++i) {
    int& number = network.values[i].constant;
    if (number < 0) continue;
    int& to = place[static_cast<std::size_t>(number)];
    if (read[i] && to < 0) {
      to = static_cast<int>(kept.size());
      kept.push_back(network.constants[static_cast<std::size_t>(number)]);
    }
    number = read[i] ? to : -1;
  }
  network.constants = std::move(kept);
}

/// Makes a node one that rounds its inputs.
void round_node(Network& network, Node& node, const RoundedForm& form, Index axis) {
  const Constant weight = *constant_of(network, node.reads[1]);
  const std::string name = network.values[static_cast<std::size_t>(node.reads[1])].name;
  const auto [matrix, scale] = round_matrix(network, weight, axis, false, name);
  if (node.op != "Conv") node.attributes.clear();
  if (form.turned) node.attributes.push_back({"transB", {1}});
  node.op = form.op;
  node.reads = {node.reads[0], matrix, scale, form.bias};
}

void round_layers(Network& network, std::span<const std::string> layers, bool round_inputs, NodeNames& names) {
  std::vector<Node> nodes;
  for (Node& node : std::exchange(network.nodes, {})) {
    const std::vector<Matrix> matrices = matrices_of(network, node);
    const std::string layer = names.next(node, matrices);
    for (Network& body : node.bodies) round_layers(body, layers, round_inputs, names);
    const bool chosen = std::ranges::find(layers, layer) != layers.end();
    const RoundedForm form =
        chosen && round_inputs && !matrices.empty() ? rounded_form_of(network, node) : RoundedForm();
    if (!form.op.empty()) {
      round_node(network, node, form, matrices[0].axis);
      nodes.push_back(std::move(node));
      continue;
    }
    for (const Matrix& each : chosen ? matrices : std::vector<Matrix>()) {
      int& read = node.reads[each.read];
      const Constant weight = *constant_of(network, read);
      const std::string name = network.values[static_cast<std::size_t>(read)].name;
      read = add_matrix(network, weight, each.axis, node.op == "Recurrent", name, nodes);
    }
    nodes.push_back(std::move(node));
  }
  network.nodes = std::move(nodes);
  drop_unread(network);
}

}  // namespace

std::vector<std::string> int8_layers(const network::Network& network) {
  std::vector<std::string> names;
  NodeNames naming(network);
  collect(network, naming, names);
  std::erase(names, std::string());
  return names;
}

network::Network with_int8(network::Network network, std::span<const std::string> layers, bool round_inputs) {
  const std::vector<std::string> known = int8_layers(network);
  for (const std::string& layer : layers) {
    require_argument(std::ranges::find(known, layer) != known.end(), "layers", layer,
                     "names of nodes whose weights can be int8, such as those that int8_layers() returns");
  }
  NodeNames names(network);
  round_layers(network, layers, round_inputs, names);
  return network;
}

}  // namespace penstock::io

namespace penstock {

QuantizedNetwork quantize(const Network& network, const std::function<double(const Network&)>& loss_of,
                          const QuantizeOptions& options) {
  const std::vector<std::string> layers = int8_layers(network);
  if (layers.empty()) {
    fail(ErrorCode::unsupported,
         "no node of this network can become int8: it has no Recurrent, MatMul, Gemm or Conv with constant float "
         "weights");
  }
  if (const double loss = loss_of(network); !std::isfinite(loss)) {
    fail(ErrorCode::numerical,
         "the loss of the unchanged network is {}: its outputs for this data are not finite, or there are none; "
         "give data for which they are",
         loss);
  }
  const auto make = [&](std::span<const std::string> chosen) {
    return network.with_int8(chosen, options.round_inputs);
  };
  return nn::Int8LayerChoice<Network>(make, layers, loss_of).run<QuantizedNetwork>(options);
}

}  // namespace penstock
