#include "nn/model/graph_builder.h"
#include "plan/cell_table.h"

namespace penstock::nn {

using graph::Extent;
using graph::Home;
using graph::Phase;

namespace {

/// Returns the target of fixed layers: no backward pass follows, so that nothing is kept for one.
ops::Target fixed_target(ops::Target target) {
  target.dtype = target.master();
  target.execution.precision = Precision::full;
  target.flags.set(CallFlag::training, false);
  return target;
}

ops::Op fixed(const ops::Op& op) {
  return {.name = op.name,
          .prepare = [op](ops::Target target) { return op.prepare(fixed_target(target)); },
          .definition = op.definition};
}

}  // namespace

ValueId GraphBuilder::fixed_parameter(const std::string& name, std::vector<Index> shape) {
  Index size = 1;
  for (const Index n : shape) size *= n;
  return external(name, Home::values, Extent::fixed, size, target_.master(),
                  layout_.add(name, std::move(shape), false, {}));
}

ValueId GraphBuilder::fixed_value(const std::string& name, Index width, Home home) {
  return graph_.add({.name = name, .width = width, .dtype = target_.master(), .home = home});
}

ValueId GraphBuilder::fixed_linear(const std::string& name, ValueId x, Index outputs, Home home, bool may_be_int8) {
  const ops::Linear shape{width_of(x), outputs, may_be_int8 && is_int8(name, width_of(x))};
  const std::vector<Index> size = {outputs, shape.inputs};
  const ValueId weight =
      shape.int8 ? int8_parameter(name + ".weight", size, true).values : fixed_parameter(name + ".weight", size);
  const ValueId bias = fixed_parameter(name + ".bias", {outputs});
  const ValueId y = fixed_value(name, outputs, home);
  node(fixed(ops::linear_forward(shape)), {x, weight, bias}, {y}, Phase::forward);
  return y;
}

ValueId GraphBuilder::fixed_convolution(const std::string& name, ValueId x, Index taps) {
  const ops::CausalConvolution shape{width_of(x), taps};
  const ValueId weight = fixed_parameter(name + ".weight", {taps, shape.width});
  const ValueId bias = fixed_parameter(name + ".bias", {shape.width});
  const State carried = state(name, shape.state_size());
  const ValueId y = fixed_value(name, shape.width);
  node(fixed(ops::causal_convolution_forward(shape)), {x, carried.in, weight, bias}, {y, carried.out}, Phase::forward);
  return y;
}

ValueId GraphBuilder::fixed_silu_gate(const std::string& name, ValueId gate_value, Home home) {
  const ops::SiluGate shape{width_of(gate_value) / 2};
  const ValueId y = fixed_value(name, shape.inner, home);
  node(fixed(ops::silu_gate_forward(shape)), {gate_value}, {y}, Phase::forward);
  return y;
}

ValueId GraphBuilder::fixed_norm(const std::string& name, ValueId x) {
  const ops::ResidualNorm shape{.width = width_of(x), .branch = false, .dropout = {}};
  const ValueId gain = fixed_parameter(name + ".gain", {shape.width});
  const ValueId y = fixed_value(name, shape.width);
  node(fixed(ops::residual_norm_forward(shape)), {x, {}, gain}, {y, {}, {}}, Phase::forward);
  return y;
}

ValueId GraphBuilder::fixed_scan(const std::string& name, ValueId x, const std::string& cell) {
  const Index width = width_of(x), gates = plan::cell_traits(cell).info.gates * width;
  const ops::Recurrence shape{.cell = cell, .input = width, .hidden = width, .heads = 1, .bias = Bias::single};
  const ops::Target target = fixed_target(target_);
  const ValueId weight = fixed_parameter(name + ".weight_ih", {gates, width});
  const ValueId bias = fixed_parameter(name + ".bias_ih", {gates});
  const std::vector<ValueId> weights = {weight, {}, bias, {}};
  const State carried = state(name, shape.state_size());
  const ops::Panels which = ops::forward_panels(target);
  const ValueId packed = ops::reads_panels(shape, which, target)
                             ? panels(name, target, which, fixed(ops::recurrence_panels(shape, which)), weights)
                             : ValueId{};
  const ValueId y = fixed_value(name, width);
  node(fixed(ops::recurrence_forward(shape)), {x, carried.in, weight, {}, bias, {}, packed}, {y, carried.out, {}},
       Phase::forward);
  return y;
}

}  // namespace penstock::nn
