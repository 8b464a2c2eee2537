// LSTM, GRU and RNN become layers of Penstock. Gates are put in order by nodes, which folding computes.

#include <algorithm>
#include <array>
#include <limits>

#include "io/onnx/read/draft.h"
#include "io/onnx/read/tensor.h"

namespace penstock::io::onnx {
namespace {

// Inputs of the operators.
enum : std::size_t { kX, kW, kR, kB, kLengths, kInitialH, kInitialC, kP, kScaleW, kZeroW, kScaleR, kZeroR };

struct RecurrentOperator {
  std::string_view op;
  Index gates;
  std::vector<std::string> activations;
  std::vector<Index> order;  ///< The operator's gate for each of ours.
};

const RecurrentOperator& operator_of(std::string_view op) {
  static const std::vector<RecurrentOperator> all = {
      {"LSTM", 4, {"Sigmoid", "Tanh", "Tanh"}, {0, 2, 3, 1}},  // i, o, f, c; ours i, f, g, o
      {"GRU", 3, {"Sigmoid", "Tanh"}, {1, 0, 2}},              // z, r, h; ours r, z, n
      {"RNN", 1, {"Tanh"}, {0}},
  };
  return *std::ranges::find(all, op, &RecurrentOperator::op);
}

/// A layer while its attributes are read.
struct Layer {
  const RecurrentOperator& op;
  Index directions = 1, hidden = 0;
  bool batch_first = false, quantised = false;
  CellForm form = {};
  std::vector<Index> order = {};  ///< As the operator's, without the gate that a coupled LSTM lacks.
};

Index hidden_size(Draft& draft, const Layer& layer) {
  Index hidden = draft.take_integer("hidden_size", 0);
  const network::Constant* const r = draft.known(draft.read(kR));
  if (r != nullptr && r->shape.size() == 3) {
    const Index stored = layer.quantised ? r->shape[1] : r->shape[2],
                rows = layer.quantised ? r->shape[2] : r->shape[1];
    if (r->shape[0] != layer.directions || rows != layer.op.gates * stored || (hidden != 0 && hidden != stored)) {
      draft.refuse(ErrorCode::bad_input, "R has the shape [{}], which fits neither {} directions nor hidden_size {}",
                   fmt::join(r->shape, ", "), layer.directions, hidden);
    }
    hidden = stored;
  }
  constexpr Index most = 1 << 20;
  if (hidden < 1 || hidden > most) {
    draft.refuse(ErrorCode::bad_input, "hidden_size is {}, expected 1 to {}", hidden, most);
  }
  return hidden;
}

/// Reads the activations and their parameters.
void read_activations(Draft& draft, Layer& layer) {
  std::vector<std::string> names;
  for (const AttributeMessage& each : draft.message().attributes) {
    if (each.name == "activations") names.assign(each.strings.begin(), each.strings.end());
  }
  const std::size_t each = layer.op.activations.size(), all = each * static_cast<std::size_t>(layer.directions);
  layer.form.alpha = draft.take("activation_alpha").numbers;
  layer.form.beta = draft.take("activation_beta").numbers;
  if (names.empty()) names = layer.op.activations;
  if (names.size() == each && layer.directions == 2) {
    const std::vector<std::string> forward = names;
    names.insert(names.end(), forward.begin(), forward.end());
  }
  if (names.size() != all) {
    draft.refuse(ErrorCode::bad_input, "it has {} activations, expected {}", names.size(), all);
  }
  layer.form.each = each;
  layer.form.activations = std::move(names);
}

Layer read_layer(Draft& draft) {
  const bool quantised = draft.node.op == "DynamicQuantizeLSTM";
  Layer layer{operator_of(quantised ? "LSTM" : draft.node.op)};
  layer.quantised = quantised;
  layer.form.op = layer.op.op;
  const network::Attribute direction = draft.take("direction");
  const std::string& name = direction.name.empty() ? "forward" : direction.text;
  if (name != "forward" && name != "reverse" && name != "bidirectional") {
    draft.refuse(ErrorCode::bad_input, "direction is {}, expected forward, reverse or bidirectional", in_quotes(name));
  }
  layer.directions = name == "bidirectional" ? 2 : 1;
  layer.hidden = hidden_size(draft, layer);
  read_activations(draft, layer);
  if (const network::Attribute clip = draft.take("clip"); !clip.name.empty()) {
    if (clip.numbers.size() != 1 || !(clip.numbers[0] > 0)) {
      draft.refuse(ErrorCode::unsupported, "clip is {}, expected a positive number", fmt::join(clip.numbers, ", "));
    }
    layer.form.clip = clip.numbers[0] < std::numeric_limits<float>::max() ? clip.numbers[0] : 0;
  }
  layer.form.coupled = layer.op.op == "LSTM" && draft.take_integer("input_forget", 0) != 0;
  layer.form.reset_after = layer.op.op == "GRU" && draft.take_integer("linear_before_reset", 0) != 0;
  layer.batch_first = draft.take_integer("layout", 0) != 0;
  const network::Constant* const peepholes = draft.known(draft.read(kP));
  layer.form.peepholes = draft.has(kP) && (peepholes == nullptr || !is_zero(*peepholes));
  layer.order = layer.op.order;
  if (layer.form.coupled) std::erase(layer.order, 2);
  draft.take("activations");
  draft.take("output_sequence");
  if (!draft.node.attributes.empty()) {
    draft.refuse(ErrorCode::unsupported, "it has the attribute {}, which {} does not have",
                 in_quotes(draft.node.attributes.front().name), draft.node.op);
  }
  draft.node.attributes = {{.name = "cell", .text = cell_of(layer.form, draft)}, {.name = "direction", .text = name}};
  if (quantised) draft.node.attributes.push_back({.name = "quantised", .integers = {1}});
  return layer;
}

/// Checks the rows of weights that are stored as they are, with a better message than require_extents() has.
void require_rows(const Draft& draft, const Layer& layer) {
  const Index rows = layer.op.gates * layer.hidden;
  const auto require = [&](std::size_t read, const char* name, std::size_t rank, Index expected) {
    const network::Constant* const stored = draft.known(draft.read(read));
    if (stored == nullptr) return;
    const network::Shape& shape = stored->shape;
    if (shape.size() == rank && shape[0] == layer.directions && shape[1] == expected) return;
    draft.refuse(ErrorCode::bad_input, "{} has the shape [{}], expected [{}, {}{}]", name, fmt::join(shape, ", "),
                 layer.directions, expected, rank == 3 ? ", I" : "");
  };
  if (!layer.quantised) require(kW, "W", 3, rows);
  require(kB, "B", 2, 2 * rows);
  require(kP, "P", 2, 3 * layer.hidden);
}

/// Lets a value that is still to be computed have these extents alone, from axis 0 on: a Split into one part refuses
/// others. Gather would take some rows of too many.
int require_extents(Draft& draft, const char* input, int value, std::initializer_list<Index> extents) {
  if (draft.known(value) != nullptr) return value;  // require_rows() or hidden_size() has checked it
  const std::string name = draft.node.name;
  draft.node.name = fmt::format("{} of {}", input, name);  // for messages
  Index axis = 0;
  for (const Index extent : extents) {
    value = draft.apply("Split", {value, draft.integers({extent})}, {{.name = "axis", .integers = {axis++}}});
  }
  draft.node.name = name;
  return value;
}

/// Blocks of H rows of axis 1, in the given order.
int gather(Draft& draft, const Layer& layer, int value, std::span<const Index> blocks, Index first = 0) {
  std::vector<Index> rows;
  for (const Index block : blocks) {
    for (Index i = 0; i < layer.hidden; ++i) rows.push_back((first + block) * layer.hidden + i);
  }
  return draft.apply("Gather", {value, draft.integers(rows)}, {{.name = "axis", .integers = {1}}});
}

/// q - zero, for q [directions, inputs, gates], with the last two axes exchanged.
int whole_numbers(Draft& draft, const Layer& layer, std::size_t weights, std::size_t zero) {
  const network::Attribute to_float{.name = "to", .integers = {kFloat}};
  const auto spread = [&](std::size_t read) {  // [directions] or [directions, gates]
    return draft.apply("Reshape", {draft.read(read), draft.integers({layer.directions, 1, -1})});
  };
  int value = draft.apply("Cast", {draft.read(weights)}, {to_float});
  if (draft.has(zero)) {
    value = draft.apply("Sub", {value, draft.apply("Cast", {spread(zero)}, {to_float})});
  }
  return draft.apply("Transpose", {value}, {{.name = "perm", .integers = {0, 2, 1}}});
}

/// Scales [directions] or [directions, gates], for each gate.
int scales_of(Draft& draft, const Layer& layer, std::size_t read) {
  if (!draft.has(read)) draft.refuse(ErrorCode::bad_input, "input {} is missing", read);
  const int each = draft.apply("Reshape", {draft.read(read), draft.integers({layer.directions, -1})});
  const Index units = layer.op.gates * layer.hidden;
  return gather(draft, layer, draft.apply("Expand", {each, draft.integers({layer.directions, units})}), layer.order);
}

/// Reads of a Recurrent node.
std::vector<int> recurrent_reads(Draft& draft, const Layer& layer) {
  const Index directions = layer.directions, hidden = layer.hidden, units = layer.op.gates * hidden;
  int w = layer.quantised ? whole_numbers(draft, layer, kW, kZeroW) : draft.read(kW);
  int r = layer.quantised ? whole_numbers(draft, layer, kR, kZeroR) : draft.read(kR);
  w = require_extents(draft, "W", w, {directions, units});
  r = require_extents(draft, "R", r, {directions, units, hidden});
  int x = draft.read(kX), bias_ih = -1, bias_hh = -1;
  if (layer.batch_first) x = draft.apply("Transpose", {x}, {{.name = "perm", .integers = {1, 0, 2}}});
  if (draft.has(kB)) {
    const int b = require_extents(draft, "B", draft.read(kB), {directions, 2 * units});
    bias_ih = gather(draft, layer, b, layer.order);
    bias_hh = gather(draft, layer, b, layer.order, layer.op.gates);
  }
  if (layer.form.peepholes) {
    const Index rows = static_cast<Index>(layer.order.size()) * layer.hidden;
    if (bias_ih < 0) bias_ih = draft.apply("Expand", {draft.number(0), draft.integers({layer.directions, rows})});
    const std::vector<Index> vectors = layer.form.coupled ? std::vector<Index>{0, 1} : std::vector<Index>{0, 2, 1};
    const int p = require_extents(draft, "P", draft.read(kP), {directions, 3 * hidden});
    bias_ih = draft.apply("Concat", {bias_ih, gather(draft, layer, p, vectors)}, {{.name = "axis", .integers = {1}}});
  }
  std::vector<int> reads = {x, gather(draft, layer, w, layer.order), gather(draft, layer, r, layer.order), bias_ih,
                            bias_hh};
  const std::size_t states = layer.op.op == "LSTM" ? 2 : 1;
  for (std::size_t state = 0; state < states; ++state) {
    int first = draft.read(kInitialH + state);
    if (first >= 0 && layer.batch_first) {
      first = draft.apply("Transpose", {first}, {{.name = "perm", .integers = {1, 0, 2}}});
    }
    reads.push_back(first);
  }
  if (draft.has(kLengths) || layer.quantised) reads.push_back(draft.read(kLengths));
  if (layer.quantised) {
    for (const int read : {-1, scales_of(draft, layer, kScaleW), scales_of(draft, layer, kScaleR)})
      reads.push_back(read);
  }
  return reads;
}

/// y [T, B, directions * H] becomes Y [T, directions, B, H], or with layout=1 [B, T, directions, H].
void write_outputs(Draft& draft, const Layer& layer, int y, int writes) {
  const int parts = draft.apply("Reshape", {y, draft.integers({0, 0, layer.directions, layer.hidden})});
  const std::vector<Index> perm = layer.batch_first ? std::vector<Index>{1, 0, 2, 3} : std::vector<Index>{0, 2, 1, 3};
  draft.add("Transpose", {parts}, {writes}, {{.name = "perm", .integers = perm}});
}

}  // namespace

void convert_recurrent(Draft& draft) {
  for (const std::size_t read : {kX, kW, kR}) {
    if (!draft.has(read)) draft.refuse(ErrorCode::bad_input, "input {} is missing", read);
  }
  const Layer layer = read_layer(draft);
  require_rows(draft, layer);
  const network::Node from = draft.node;
  const std::vector<int> reads = recurrent_reads(draft, layer);
  const std::size_t states = layer.op.op == "LSTM" ? 2 : 1;
  const std::vector<network::Attribute> attributes = from.attributes;
  std::vector<int> writes = {-1};
  const auto wanted = [&](std::size_t i) { return i < from.writes.size() && from.writes[i] >= 0; };
  // The node stands behind what it reads and in front of what reads it, so the values that it writes come first.
  if (wanted(0)) writes[0] = draft.value();
  for (std::size_t state = 0; state < states; ++state) {
    if (!wanted(1 + state)) {
      writes.push_back(-1);
    } else {
      writes.push_back(layer.batch_first ? draft.value() : from.writes[1 + state]);
    }
  }
  draft.add("Recurrent", reads, writes, attributes);
  if (wanted(0)) write_outputs(draft, layer, writes[0], from.writes[0]);
  for (std::size_t state = 0; layer.batch_first && state < states; ++state) {
    if (!wanted(1 + state)) continue;
    draft.add("Transpose", {writes[1 + state]}, {from.writes[1 + state]}, {{.name = "perm", .integers = {1, 0, 2}}});
  }
}

}  // namespace penstock::io::onnx
