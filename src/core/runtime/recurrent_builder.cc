#include "runtime/recurrent_builder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_map>

#include "base/filter_shape.h"

namespace penstock::runtime {

namespace {

// Places of work are told from places of state until the size of the state is known.
constexpr Place kWork = Place{1} << 40;

Index whole_lines_of(Index count) {
  constexpr Index line = static_cast<Index>(Buffer::kAlignment / sizeof(float));
  return (count + line - 1) / line * line;
}

Index product(const std::vector<Index>& shape) {
  Index count = 1;
  for (const Index extent : shape) count *= extent;
  return count;
}

}  // namespace

Place RecurrentBuilder::work(Index count) {
  const Place place = kWork + work_;
  work_ += whole_lines_of(count);
  return place;
}

Place RecurrentBuilder::state(Index count) {
  const Place place = state_;
  state_ += count;
  return place;
}

const float* RecurrentBuilder::tensor(const std::string& name, const std::vector<Index>& shape, bool counts) {
  if (failure_.status() != PENSTOCK_OK) return nullptr;
  const float* const values = file_.floats(name, shape, failure_);
  if (values == nullptr) return nullptr;
  used_[*file_.find(name)] = true;
  if (counts) model_.parameters += static_cast<std::uint64_t>(product(shape));
  return values;
}

bool RecurrentBuilder::is_int8(const std::string& layer, Index columns) {
  constexpr Index most = 1 << 17;  // as in nn/model/graph_builder.cc
  if (columns > most || std::ranges::find(of_.int8, layer) == of_.int8.end()) return false;
  ++int8_layers_;
  return true;
}

cpu::Int8Matrix RecurrentBuilder::int8_tensor(const std::string& name, const std::vector<Index>& shape) {
  if (failure_.status() != PENSTOCK_OK) return {};
  const std::int8_t* const values = file_.int8(name, shape, failure_);
  if (values == nullptr) return {};
  used_[*file_.find(name)] = true;
  const Index size = product(shape), rows = size / shape.back();
  model_.parameters += static_cast<std::uint64_t>(size);
  const float* const scales = tensor(name + ".scale", {shape.begin(), shape.end() - 1}, false);
  const auto negative = [](float scale) { return scale < 0.0f; };
  if (scales != nullptr && std::any_of(scales, scales + rows, negative)) {
    failure_.in_file(PENSTOCK_BAD_INPUT, "tensor %s holds negative values; scales of weights must be 0 or more",
                     Quoted(name + ".scale").c_str());
  }
  return {values, scales};
}

void RecurrentBuilder::take_matrix(Instruction& to, const std::string& name, Index rows, Index columns, bool int8) {
  if (int8) {
    to.int8 = int8_tensor(name + ".weight", {rows, columns});
  } else {
    to.weight = tensor(name + ".weight", {rows, columns});
  }
}

Place RecurrentBuilder::linear(const std::string& name, Place x, Index inputs, Index outputs, bool may_be_int8) {
  Instruction product{.kind = Instruction::Kind::linear, .n = outputs, .k = inputs, .x = x, .y = work(outputs)};
  const bool int8 = may_be_int8 && is_int8(name, inputs);
  if (int8) {
    product.kind = Instruction::Kind::int8_linear;
    product.z = work(model_.int8->operand_bytes(inputs) / static_cast<Index>(sizeof(float)));
  }
  take_matrix(product, name, outputs, inputs, int8);
  product.bias = tensor(name + ".bias", {outputs});
  add(product);
  return product.y;
}

Place RecurrentBuilder::convolution(const std::string& name, Place x, Index width, Index taps) {
  const Place y = work(width);
  const float* const weight = tensor(name + ".weight", {taps, width});
  if (weight == nullptr) return y;
  add({.kind = Instruction::Kind::convolution,
       .n = width,
       .k = taps,
       .x = x,
       .y = y,
       .z = state((taps - 1) * width),
       .weight = weight,
       .bias = tensor(name + ".bias", {width})});
  return y;
}

Place RecurrentBuilder::silu_gate(Place x, Index inner) {
  const Place y = work(inner);
  add({.kind = Instruction::Kind::silu_gate, .n = inner, .x = x, .y = y});
  return y;
}

Place RecurrentBuilder::norm(const std::string& name, ResidualStream& stream, Index width) {
  const Place y = work(width);
  add({.kind = Instruction::Kind::norm,
       .n = width,
       .x = stream.x,
       .y = y,
       .z = stream.branch,
       .weight = tensor(name + ".gain", {width})});
  stream.branch = -1;
  return y;
}

/// `pooling`: the layer that averages filters, a minGRU whatever the model's cell is.
Place RecurrentBuilder::recurrence(const std::string& name, Place x, Index input, Index hidden, Index heads,
                                   bool pooling) {
  const custom::DerivedCell* const custom = pooling ? nullptr : of_.custom.get();
  const CellForm& form = *find_cell_form(pooling || custom != nullptr ? "mingru" : of_.cell);
  const Index gates = custom != nullptr ? custom->cell.gates : form.gates, head = hidden / heads;
  const bool scan = custom != nullptr ? custom->cell.scan : form.scan;
  if (!pooling && custom == nullptr && is_int8(name, std::max(input, hidden))) {
    return int8_recurrence(name, x, input, hidden, heads);
  }
  LayerWeights weights;
  weights.learnt = custom != nullptr ? static_cast<Index>(custom->cell.learnt.size()) : 0;
  weights.weights.weight_ih = tensor(name + ".weight_ih", {gates * hidden, input});
  if (!scan && heads == 1) weights.weights.weight_hh = tensor(name + ".weight_hh", {gates * hidden, head});
  if (!scan && heads > 1) weights.weights.weight_hh = tensor(name + ".weight_hh", {heads, gates * head, head});
  weights.weights.bias_ih = tensor(name + ".bias_ih", {(gates + weights.learnt) * hidden});
  const Place y = work(hidden);
  if (failure_.status() != PENSTOCK_OK) return y;

  Layer layer;
  layer.input = input, layer.hidden = hidden, layer.heads = heads;
  layer.custom = custom;
  layer.states = custom != nullptr ? static_cast<int>(custom->cell.states.size()) : form.states;
  if (custom != nullptr) {
    model_.kernels->fill_custom(static_cast<int>(gates), scan, layer.kernels);
  } else {
    model_.kernels->fill_cell(form.index, layer.kernels);
  }
  layer.state = state(layer.states * hidden);
  layer.panels = layer.kernels.panels(input, hidden, heads) + static_cast<std::size_t>(weights.learnt * hidden);
  Index scratch = form.phases == 2 && custom == nullptr ? (1 + form.saved) * hidden : 0;
  if (custom != nullptr && custom->averages) {
    scratch = 2 * gates * hidden + cpu::head_values(custom->forward.slots, head);
  }
  layer.scratch = work(scratch);
  add({.kind = Instruction::Kind::recurrence, .n = hidden, .k = input, .x = x, .y = y, .index = model_.layers.size()});
  model_.layers.push_back(layer);
  weights_.push_back(weights);
  return y;
}

Place RecurrentBuilder::int8_recurrence(const std::string& name, Place x, Index input, Index hidden, Index heads) {
  const CellForm& form = *find_cell_form(of_.cell);
  const Index gates = form.gates, head = hidden / heads;
  Layer layer;
  layer.input = input, layer.hidden = hidden, layer.heads = heads, layer.states = form.states;
  model_.int8->fill_cell(form.index, layer.int8_gates);
  layer.gates = gates;
  layer.bias = tensor(name + ".bias_ih", {gates * hidden});
  layer.int8_ih = int8_tensor(name + ".weight_ih", {gates * hidden, input});
  if (!form.scan && heads == 1) layer.int8_hh = int8_tensor(name + ".weight_hh", {gates * hidden, head});
  if (!form.scan && heads > 1) layer.int8_hh = int8_tensor(name + ".weight_hh", {heads, gates * head, head});
  const Place y = work(hidden);
  layer.state = state(layer.states * hidden);
  layer.scratch = work(form.phases == 2 ? (1 + form.saved) * hidden : 0);
  layer.sums = work(2 * gates * hidden);
  layer.operand = work(model_.int8->operand_bytes(std::max(input, hidden)) / static_cast<Index>(sizeof(float)));
  add({.kind = Instruction::Kind::recurrence, .n = hidden, .k = input, .x = x, .y = y, .index = model_.layers.size()});
  model_.layers.push_back(layer);
  weights_.emplace_back();
  return y;
}

void RecurrentBuilder::block(const std::string& name, Index index, ResidualStream& stream) {
  const Index width = of_.width;
  Place x = of_.end_norms || index > 0 ? norm(name + ".recurrent_norm", stream, width) : stream.x;
  if (of_.taps > 0) x = convolution(name + ".convolution", x, width, of_.taps);
  x = recurrence(name + ".recurrent", x, width, of_.hidden, of_.heads, false);
  stream.branch = of_.hidden == width ? x : linear(name + ".projection", x, of_.hidden, width, true);
  if (of_.inner == 0) return;
  const Place normal = norm(name + ".feed_forward_norm", stream, width);
  const Place up = linear(name + ".feed_forward.up", normal, width, 2 * of_.inner, true);
  stream.branch = linear(name + ".feed_forward.down", silu_gate(up, of_.inner), of_.inner, width, true);
}

/// The columns that are inputs and targets, as changes_of() of nn/model/model_graph.cc finds them.
void RecurrentBuilder::find_shared() {
  const auto horizon = static_cast<double>(of_.horizon);
  model_.change_scale = std::sqrt((horizon + 1.0) / 2.0);
  std::unordered_map<std::string_view, Index> positions;
  for (std::size_t i = 0; i < of_.inputs.size(); ++i) {
    const ModelColumn& column = of_.inputs[i];
    if (column.is_value && column.ahead == 0) positions.try_emplace(column.name, static_cast<Index>(i));
  }
  for (std::size_t target = 0; target < of_.targets.size(); ++target) {
    const ModelColumn& to = of_.targets[target];
    const auto found = positions.find(to.name);
    if (found == positions.end()) continue;
    const ModelColumn& from = of_.inputs[static_cast<std::size_t>(found->second)];
    model_.shared.push_back(
        {found->second, static_cast<Index>(target), from.scale / to.scale, (from.mean - to.mean) / to.scale});
  }
}

Place RecurrentBuilder::add_input(const std::string& prefix) {
  const Index width = of_.width;
  if (of_.vocabulary > 0) {
    const std::string name = prefix + "embedding";
    Instruction take{.kind = Instruction::Kind::embedding, .n = width, .y = work(width)};
    take_matrix(take, name, of_.vocabulary, width, is_int8(name, width));
    add(take);
    return take.y;
  }
  Place x = model_.features;
  Index inputs = of_.input_size();
  if (of_.from_last) {
    const auto shared = static_cast<Index>(model_.shared.size());
    const Place read = work(inputs + shared);
    add({.kind = Instruction::Kind::read_changes, .n = shared, .k = inputs, .x = x, .y = read, .z = state(shared + 1)});
    x = read;
    inputs += shared;
  }
  return linear(prefix + "input", x, inputs, width);
}

/// One model of an ensemble, or the only one, up to its head.
Place RecurrentBuilder::member(const std::string& prefix) {
  ResidualStream stream{.x = add_input(prefix)};
  for (Index i = 0; i < of_.blocks && failure_.status() == PENSTOCK_OK; ++i) {
    block(prefix + "blocks." + std::to_string(i), i, stream);
  }
  Place last = stream.x;
  if (of_.end_norms) {
    last = norm(prefix + "norm", stream, of_.width);
  } else if (stream.branch >= 0) {
    add({.kind = Instruction::Kind::sum, .n = of_.width, .x = stream.x, .z = stream.branch});
  }
  return linear(prefix + "head", last, of_.width, of_.output_size(), true);
}

void RecurrentBuilder::linear_branch(Place outputs) {
  const Index inputs = of_.input_size(), size = of_.output_size();
  const Place spread = linear("autoregression.spread", model_.features, inputs, size);
  add({.kind = Instruction::Kind::add,
       .n = size,
       .x = convolution("autoregression", spread, size, of_.lags),
       .y = outputs});
  if (!of_.known_effects) return;
  add({.kind = Instruction::Kind::add,
       .n = size,
       .x = linear("autoregression.known", model_.features, inputs, size),
       .y = outputs});
}

void RecurrentBuilder::filter_branch(Place outputs) {
  const Index inputs = of_.input_size(), classes = of_.output_size(), filters = of_.filters / 2;
  const Index channels = nn::filter_taps * nn::filter_channels(inputs);
  const Place spread = linear("filters.spread", model_.features, inputs, channels);
  Place evidence = -1;
  for (Index bank = 0; bank < 2 * of_.dilations && failure_.status() == PENSTOCK_OK; ++bank) {
    const std::string name = "filters." + std::to_string(bank);
    const Place delayed = convolution(name + ".delay", spread, channels, nn::span_of(bank));
    const Place gates = linear(name + ".combine", delayed, channels, 2 * filters, true);
    const Place of_bank = linear(name + ".evidence", silu_gate(gates, filters), filters, classes + 1);
    if (evidence >= 0) add({.kind = Instruction::Kind::add, .n = classes + 1, .x = of_bank, .y = evidence});
    if (evidence < 0) evidence = of_bank;
  }
  ResidualStream sums{.x = recurrence("filters.sum", evidence, classes + 1, classes + 1, 1, true)};
  const Place means = norm("filters.norm", sums, classes + 1);
  add({.kind = Instruction::Kind::add,
       .n = classes,
       .x = linear("filters.output", means, classes + 1, classes),
       .y = outputs});
}

bool RecurrentBuilder::pack() {
  std::size_t floats = 0;
  for (Layer& layer : model_.layers) {
    layer.packed = floats;
    floats += static_cast<std::size_t>(whole_lines_of(static_cast<Index>(layer.panels)));
  }
  if (!model_.packed.allocate(floats * sizeof(float))) {
    return failure_.in_file(PENSTOCK_OUT_OF_MEMORY, "no memory for %zu packed weights", floats);
  }
  for (std::size_t i = 0; i < model_.layers.size(); ++i) {
    const Layer& layer = model_.layers[i];
    const LayerWeights& of = weights_[i];
    if (layer.panels == 0) continue;  // of int8
    float* const panels = model_.packed.floats() + layer.packed;
    layer.kernels.pack(layer.input, layer.hidden, layer.heads, of.weights, panels);
    const Index gates = layer.custom != nullptr ? layer.custom->cell.gates : 0, learnt = of.learnt * layer.hidden;
    std::copy_n(of.weights.bias_ih + gates * layer.hidden, learnt, panels + layer.panels - learnt);
  }
  return true;
}

/// Work begins on a line of the cache behind the state.
void RecurrentBuilder::move_behind_state() {
  const Index behind = whole_lines_of(state_);
  const auto move = [&](Place& place) {
    if (place >= kWork) place += behind - kWork;
  };
  for (Instruction& instruction : model_.instructions) {
    move(instruction.x);
    move(instruction.y);
    move(instruction.z);
  }
  for (Layer& layer : model_.layers) {
    for (Place* const place : {&layer.scratch, &layer.sums, &layer.operand}) move(*place);
  }
  move(model_.features);
  move(model_.answers);
  model_.state_bytes = static_cast<std::size_t>(state_) * sizeof(float);
  model_.floats = behind + work_;
}

bool RecurrentBuilder::build() {
  used_.resize(file_.tensors().size());
  model_.features = work(of_.input_size());
  if (of_.from_last) {
    find_shared();
    if (model_.shared.empty()) {
      return failure_.in_file(PENSTOCK_BAD_INPUT, "its description: from_last needs an input that is forecast");
    }
  }
  const auto prefix = [&](Index i) { return of_.members > 1 ? "members." + std::to_string(i) + "." : std::string(); };
  const Place outputs = member(prefix(0));
  for (Index i = 1; i < of_.members && failure_.status() == PENSTOCK_OK; ++i) {
    add({.kind = Instruction::Kind::add, .n = of_.output_size(), .x = member(prefix(i)), .y = outputs});
  }
  if (of_.from_last) {
    add({.kind = Instruction::Kind::add_last,
         .n = of_.horizon,
         .k = static_cast<Index>(of_.targets.size()),
         .x = model_.features,
         .y = outputs});
  }
  if (of_.lags > 0) linear_branch(outputs);
  if (of_.filters > 0) filter_branch(outputs);
  model_.answers = outputs;
  if (failure_.status() != PENSTOCK_OK) return false;
  if (int8_layers_ != of_.int8.size()) {
    return failure_.in_file(PENSTOCK_BAD_INPUT,
                            "its description: int8 must name layers whose matrices can be int8, each once");
  }
  for (std::size_t i = 0; i < used_.size(); ++i) {
    const std::string& name = file_.tensors()[i].name;
    if (used_[i] || name.starts_with("training.")) continue;
    return failure_.in_file(PENSTOCK_INCOMPATIBLE, "tensor %s belongs to no part of this architecture",
                            Quoted(name).c_str());
  }
  if (!pack()) return false;
  move_behind_state();
  return true;
}

}  // namespace penstock::runtime
