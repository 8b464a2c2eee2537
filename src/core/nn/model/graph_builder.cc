#include "nn/model/graph_builder.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "ops/pointwise/cast.h"
#include "ops/pointwise/dropout.h"
#include "plan/cell_table.h"

namespace penstock::nn {

using graph::Extent;
using graph::Home;
using graph::Phase;
using graph::Value;

GraphBuilder::GraphBuilder(const ops::Target& target) : target_(target) {
  if (target.dtype == target.master()) return;
  casts_ = graph_.add({.name = "weights",
                       .extent = Extent::fixed,
                       .dtype = target.dtype,
                       .home = Home::derived,
                       .key = std::string(to_string(target.dtype))});
}

graph::Graph GraphBuilder::take_graph() {
  if (casts_) {
    const ValueId masters = external("weights", Home::values, Extent::fixed, layout_.size(), target_.master());
    graph_.set_width(casts_, layout_.size());
    node(ops::cast({.width = layout_.size(), .per_position = false}, target_.master(), target_.dtype), {masters},
         {casts_}, Phase::weights);
  }
  return std::move(graph_);
}

ValueId GraphBuilder::external(const std::string& name, Home home, Extent extent, Index width, DType dtype,
                               Index offset) {
  return graph_.add({.name = name, .extent = extent, .width = width, .dtype = dtype, .home = home, .offset = offset});
}

ValueId GraphBuilder::features(Index inputs) {
  return external("features", Home::features, Extent::positions, inputs, target_.master());
}

ValueId GraphBuilder::activation(const std::string& name, Index width) {
  return graph_.add({.name = name, .width = width, .dtype = target_.dtype});
}

void GraphBuilder::node(ops::Op op, std::vector<ValueId> reads, std::vector<ValueId> writes, Phase phase,
                        std::vector<std::pair<int, int>> in_place) {
  graph_.add({std::move(op), std::move(reads), std::move(writes), phase, std::move(in_place)});
}

GraphBuilder::Parameter GraphBuilder::parameter(const std::string& name, std::vector<Index> shape, bool decay,
                                                Initial initial) {
  Index size = 1;
  for (const Index n : shape) size *= n;
  const Index offset = layout_.add(name, std::move(shape), decay, std::move(initial));
  Parameter result;
  result.master = external(name, Home::values, Extent::fixed, size, target_.master(), offset);
  result.cast = result.master;
  if (casts_) {
    result.cast = graph_.add({.name = name,
                              .extent = Extent::fixed,
                              .width = size,
                              .dtype = target_.dtype,
                              .home = Home::derived,
                              .offset = offset,
                              .part_of = casts_});
  }
  if (target_.has(CallFlag::training)) {
    result.gradient = external(name + ".gradient", Home::gradients, Extent::fixed, size, target_.master(), offset);
  }
  return result;
}

void GraphBuilder::set_int8(const std::vector<std::string>& layers) {
  int8_ = layers;
  if (layers.empty()) return;
  if (target_.device.is_cuda()) {  // no profile of a GPU has shown yet that they would pay there
    fail(ErrorCode::unsupported,
         "weights of int8 run on CPUs only, not on {}: run the model there that was quantised, or this one on the cpu",
         to_string(target_.device));
  }
  if (target_.has(CallFlag::training)) {
    fail(ErrorCode::unsupported,
         "a model with weights of int8 cannot be trained: train the one that was quantised, then quantise anew");
  }
}

bool GraphBuilder::is_int8(const std::string& layer, Index columns) {
  constexpr Index most = 1 << 17;  // columns, whose sums of products fit 32 bits
  if (columns > most) return false;
  int8_layers_.push_back(layer);
  return std::ranges::find(int8_, layer) != int8_.end();
}

GraphBuilder::Int8Parameter GraphBuilder::int8_parameter(const std::string& name, std::vector<Index> shape,
                                                         bool panels) {
  if (shape.empty()) return {};
  const ParameterLayout::Int8Entries made = layout_.add_int8(name, std::move(shape), panels);
  return {external(name, Home::values, Extent::fixed, made.floats, DType::f32, made.values),
          external(name + ".scale", Home::values, Extent::fixed, made.rows, DType::f32, made.scales)};
}

GraphBuilder::State GraphBuilder::state(const std::string& name, Index width, Index states) {
  const auto add = [&](const char* suffix, Home home) {
    return graph_.add({.name = name + suffix,
                       .extent = Extent::rows,
                       .width = width,
                       .dtype = target_.master(),
                       .home = home,
                       .offset = state_size_,
                       .states = states});
  };
  const State result{add(".state_in", Home::state_in), add(".state_out", Home::state_out)};
  state_size_ += width;
  return result;
}

ValueId& GraphBuilder::gradient_of(ValueId id) {
  const auto i = static_cast<std::size_t>(id.index);
  if (gradients_.size() <= i) gradients_.resize(i + 1);
  return gradients_[i];
}

void GraphBuilder::add_gradient(ValueId of, ValueId gradient) {
  ValueId& all = gradient_of(of);
  if (!all) {
    all = gradient;
    return;
  }
  const Index width = width_of(of);
  const ValueId sum = activation(graph_.value(of).name + ".gradient", width);
  using Of = ops::ResidualSumOperand;
  node(ops::residual_sum(width, {}), {all, gradient}, {sum}, Phase::backward,
       {{Of::sum, Of::x}, {Of::sum, Of::branch}});
  gradient_of(of) = sum;
}

ValueId GraphBuilder::take_column_sums(ValueId of) {
  const auto found =
      std::ranges::find_if(column_sums_, [&](const std::pair<ValueId, ValueId>& wanted) { return wanted.first == of; });
  return found == column_sums_.end() ? ValueId{} : std::exchange(found->second, ValueId{});
}

ValueId GraphBuilder::embedding(const std::string& name, Index vocabulary, Index width) {
  constexpr double deviation = 0.3;
  const ops::Embedding shape{vocabulary, width, is_int8(name, width)};
  Parameter table;
  Int8Parameter rows;
  if (shape.int8) {
    rows = int8_parameter(name + ".weight", {vocabulary, width});
  } else {
    table = parameter(name + ".weight", {vocabulary, width}, true, {Initial::Kind::normal, deviation, {}});
  }
  const ValueId tokens = external("tokens", Home::tokens, Extent::positions, 1, DType::i32);
  const ValueId y = activation(name, width);
  std::vector<ValueId> reads = {tokens, table.cast};
  if (shape.int8) reads = {tokens, rows.values, rows.scales};
  node(ops::embedding_forward(shape), reads, {y}, Phase::forward);
  on_backward([=, this] {
    node(ops::embedding_backward(shape), {tokens, gradient_of(y)}, {table.gradient}, Phase::backward);
  });
  return y;
}

ValueId GraphBuilder::linear(const std::string& name, ValueId x, Index outputs, double scale, bool x_has_gradient,
                             Home home, const Initial& fresh_bias) {
  const ops::Linear shape{width_of(x), outputs, x_has_gradient && is_int8(name, width_of(x))};
  Parameter weight;
  if (shape.int8) {
    weight.cast = int8_parameter(name + ".weight", {outputs, shape.inputs}, true).values;
  } else {
    weight = parameter(name + ".weight", {outputs, shape.inputs}, true,
                       {Initial::Kind::normal, scale / std::sqrt(static_cast<double>(shape.inputs)), {}});
  }
  const Parameter bias = parameter(name + ".bias", {outputs}, false, fresh_bias);
  const ValueId y = graph_.add({.name = name, .width = outputs, .dtype = target_.dtype, .home = home});
  node(ops::linear_forward(shape), {x, weight.cast, bias.cast}, {y}, Phase::forward);
  column_sums_.emplace_back(y, bias.gradient);
  on_backward([=, this] {
    const ValueId dx = x_has_gradient ? activation(name + ".dx", shape.inputs) : ValueId{};
    const ValueId dbias = take_column_sums(y);
    node(ops::linear_backward(shape, static_cast<bool>(dbias), x_has_gradient), {x, weight.cast, gradient_of(y)},
         {weight.gradient, dbias, dx}, Phase::backward);
    gradient_of(x) = dx;
  });
  return y;
}

GraphBuilder::Sum GraphBuilder::residual_norm(const std::string& name, ValueId x, ValueId branch,
                                              const ops::Dropout& dropout) {
  const Index width = width_of(x);
  const ops::ResidualNorm shape{.width = width, .branch = static_cast<bool>(branch), .dropout = dropout};
  const Parameter gain = parameter(name + ".gain", {width}, false, {Initial::Kind::constant, 1.0, {}});
  const ValueId normal = activation(name, width);
  const ValueId sum = shape.branch ? activation(name + ".sum", width) : x;
  const ValueId inverse = target_.has(CallFlag::training)
                              ? graph_.add({.name = name + ".inverse", .width = 1, .dtype = target_.master()})
                              : ValueId{};
  node(ops::residual_norm_forward(shape), {x, branch, gain.master}, {normal, shape.branch ? sum : ValueId{}, inverse},
       Phase::forward,
       {{ops::NormOperand::sum, ops::NormOperand::x}, {ops::NormOperand::sum, ops::NormOperand::branch}});
  on_backward([=, this] {
    const ValueId dsum = gradient_of(sum);  // of the next residual connection, unless nothing is added to the sum
    const ValueId dx = activation(name + ".dx", width);
    const ValueId dbranch = shape.drops(target_) ? activation(name + ".dbranch", width) : ValueId{};
    const ValueId sums = shape.branch ? take_column_sums(branch) : ValueId{};
    node(ops::residual_norm_backward(shape, static_cast<bool>(sums)),
         {sum, inverse, gain.master, gradient_of(normal), dsum}, {gain.gradient, dx, dbranch, sums}, Phase::backward,
         {{ops::NormBackwardOperand::dx, ops::NormBackwardOperand::dsum}});
    gradient_of(x) = dx;
    if (shape.branch) gradient_of(branch) = dbranch ? dbranch : dx;
  });
  return {normal, sum};
}

ValueId GraphBuilder::residual_sum(const std::string& name, ValueId x, ValueId branch, const ops::Dropout& dropout) {
  const Index width = width_of(x);
  const ValueId sum = activation(name, width);
  using Of = ops::ResidualSumOperand;
  node(ops::residual_sum(width, dropout), {x, branch}, {sum}, Phase::forward,
       {{Of::sum, Of::x}, {Of::sum, Of::branch}});
  on_backward([=, this] {
    const ValueId d = gradient_of(sum);
    gradient_of(x) = d;
    gradient_of(branch) = d;
    if (!target_.has(CallFlag::training) || dropout.probability == 0.0) return;
    const ValueId dbranch = activation(name + ".dbranch", width);
    node(ops::dropout(width, dropout), {d}, {dbranch}, Phase::backward);
    gradient_of(branch) = dbranch;
  });
  return sum;
}

ValueId GraphBuilder::causal_convolution(const std::string& name, ValueId x, Index taps) {
  const Index width = width_of(x);
  const ops::CausalConvolution shape{width, taps};
  // The current step passes through and the older ones add a little: the block starts as the one without a convolution
  // and learns from there how far to look back.
  const Parameter weight = parameter(name + ".weight", {taps, width}, false,
                                     {Initial::Kind::pass_through, 0.5 / std::sqrt(static_cast<double>(taps)), {}});
  const Parameter bias = parameter(name + ".bias", {width}, false, {});
  const State carried = state(name, shape.state_size());
  const ValueId y = activation(name, width);
  node(ops::causal_convolution_forward(shape), {x, carried.in, weight.master, bias.master}, {y, carried.out},
       Phase::forward);
  on_backward([=, this] {
    const ValueId dx = activation(name + ".dx", width);
    node(ops::causal_convolution_backward(shape), {x, carried.in, weight.master, gradient_of(y)},
         {weight.gradient, bias.gradient, dx}, Phase::backward);
    add_gradient(x, dx);
  });
  return y;
}

ValueId GraphBuilder::panels(const std::string& name, const ops::Recurrence& shape, ops::Panels which,
                             const std::vector<ValueId>& weights) {
  if (!ops::reads_panels(shape, which, target_)) return {};
  return panels(name, target_, which, ops::recurrence_panels(shape, which), weights);
}

ValueId GraphBuilder::panels(const std::string& name, const ops::Target& target, ops::Panels which, ops::Op packing,
                             const std::vector<ValueId>& weights) {
  const ValueId id = graph_.add({.name = name + ".panels",
                                 .extent = Extent::fixed,
                                 .width = -1,
                                 .dtype = target.dtype,
                                 .home = Home::derived,
                                 .key = name + " " + ops::panels_key(which, target)});
  node(std::move(packing), weights, {id}, Phase::weights);
  return id;
}

ValueId GraphBuilder::recurrence(const std::string& name, ValueId x, const ops::Recurrence& form) {
  const Bias bias = form.bias;
  const plan::CellTraits& cell = plan::cell_traits(form.cell);
  ops::Recurrence shape = form;
  shape.int8 = cell.custom == nullptr && is_int8(name, std::max(shape.input, shape.hidden));
  const Index gates = cell.info.gates * shape.hidden;
  std::vector<Parameter> parameters(4);  // weight_ih, weight_hh, bias_ih, bias_hh
  if (!shape.int8) {
    auto [of_input, of_state] = ops::matrix_extents(shape);
    const double input_deviation = 1.0 / std::sqrt(static_cast<double>(shape.input));
    parameters[0] =
        parameter(name + ".weight_ih", std::move(of_input), true, {Initial::Kind::normal, input_deviation, {}});
    if (!of_state.empty()) {
      // As PyTorch has them: the recurrent matrix is a contraction.
      const double bound = 1.0 / std::sqrt(static_cast<double>(of_state.back()));
      parameters[1] = parameter(name + ".weight_hh", std::move(of_state), true, {Initial::Kind::uniform, bound, {}});
    }
  }
  if (bias != Bias::none) {
    parameters[2] = parameter(name + ".bias_ih", {cell.bias_vectors() * shape.hidden}, false,
                              {Initial::Kind::gate_bias, static_cast<double>(shape.hidden), shape.cell});
  }
  if (bias == Bias::both && !cell.info.scan) parameters[3] = parameter(name + ".bias_hh", {gates}, false, {});
  std::vector<ValueId> weights;
  weights.reserve(parameters.size());
  for (const Parameter& each : parameters) weights.push_back(each.cast);
  if (!cell.info.scan) {  // whose products have no bias in their epilogue
    weights[2] = parameters[2].master;
    weights[3] = parameters[3].master;
  }
  std::vector<ValueId> packed = weights;
  if (shape.int8) {
    auto [of_input, of_state] = ops::matrix_extents(shape);
    const Int8Parameter weight_ih = int8_parameter(name + ".weight_ih", std::move(of_input));
    const Int8Parameter weight_hh = int8_parameter(name + ".weight_hh", std::move(of_state));
    packed = {weight_ih.values, weight_hh.values, weights[2], weights[3], weight_ih.scales, weight_hh.scales};
  }

  const State carried = state(name, shape.state_size(), cell.info.states);
  const ValueId y = activation(name, shape.hidden);
  const ValueId tape = target_.has(CallFlag::training) ? graph_.add({.name = name + ".tape", .width = -1}) : ValueId{};
  std::vector<ValueId> reads = {x, carried.in};
  reads.insert(reads.end(), weights.begin(), weights.end());
  reads.push_back(panels(name, shape, ops::forward_panels(target_), packed));
  node(ops::recurrence_forward(shape), reads, {y, carried.out, tape}, Phase::forward);
  recurrent_outputs_.push_back(y);
  on_backward([=, this] {
    const ValueId dx = activation(name + ".dx", shape.input);
    std::vector<ValueId> needs = {x, y, gradient_of(y), carried.in};
    needs.insert(needs.end(), weights.begin(), weights.end());
    needs.push_back(panels(name, shape, ops::Panels::backward, weights));
    needs.push_back(tape);
    needs.push_back({});  // the state that goes out has no gradient
    needs.push_back({});  // nor have those behind each step
    std::vector<ValueId> makes;
    for (const Parameter& each : parameters) makes.push_back(each.gradient);
    makes.push_back(dx);
    makes.push_back({});
    node(ops::recurrence_backward(shape), std::move(needs), std::move(makes), Phase::backward);
    add_gradient(x, dx);
  });
  return y;
}

ValueId GraphBuilder::silu_gate(const std::string& name, ValueId gate_value) {
  const ops::SiluGate shape{width_of(gate_value) / 2};
  const ValueId y = activation(name, shape.inner);
  node(ops::silu_gate_forward(shape), {gate_value}, {y}, Phase::forward);
  on_backward([=, this] {
    const ValueId d = activation(name + ".dx", 2 * shape.inner);
    const ValueId sums = take_column_sums(gate_value);
    node(ops::silu_gate_backward(shape, static_cast<bool>(sums)), {gate_value, gradient_of(y)}, {d, sums},
         Phase::backward, {{ops::SiluGateBackwardOperand::dx, ops::SiluGateBackwardOperand::x}});
    gradient_of(gate_value) = d;
  });
  return y;
}

ValueId GraphBuilder::clear_padding(ValueId x) {
  const ValueId y = activation(graph_.value(x).name + ".cleared", width_of(x));
  node(ops::clear_padding(width_of(x)), {x}, {y}, Phase::forward);
  return y;
}

ValueId GraphBuilder::read_changes(const ops::Changes& changes, ValueId features) {
  const State carried = state("changes", changes.state_size());
  const ValueId y = activation("changes", changes.width());
  node(ops::read_changes(changes), {features, carried.in}, {y, carried.out}, Phase::forward);
  return y;
}

void GraphBuilder::add(ValueId x, ValueId outputs) {
  const Index width = width_of(outputs);
  ops::Changes sum{.inputs = width, .targets = width, .horizon = 1, .columns = {}};
  for (Index i = 0; i < width; ++i) sum.columns.push_back({i, i, 1.0, 0.0});
  node(ops::add_last_values(sum), {x, outputs}, {outputs}, Phase::forward);
}

void GraphBuilder::add_last_values(const ops::Changes& changes, ValueId features, ValueId outputs) {
  node(ops::add_last_values(changes), {features, outputs}, {outputs}, Phase::forward);
}

ValueId GraphBuilder::as_master(ValueId x, Home home) {
  if (target_.dtype == target_.master()) return x;
  const Index width = width_of(x);
  const ValueId y =
      graph_.add({.name = graph_.value(x).name + ".f32", .width = width, .dtype = target_.master(), .home = home});
  node(ops::cast({.width = width, .per_position = true}, target_.dtype, target_.master()), {x}, {y}, Phase::forward);
  return y;
}

void GraphBuilder::backward(ValueId value, ValueId gradient) {
  gradient_of(value) = gradient;
  // clang 14 knows no views of this library. NOLINTNEXTLINE(modernize-loop-convert)
  for (auto nodes = backward_.rbegin(); nodes != backward_.rend(); ++nodes) (*nodes)();
}

}  // namespace penstock::nn
