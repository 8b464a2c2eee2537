#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/aligned.h"
#include "nn/check_cell.h"
#include "penstock/recurrent_program.h"
#include "support/bf16.h"

/// Programs run as a binding runs them: memory of the caller's on the host, no larger than stated, poisoned before.
namespace penstock::test {

template <class Real>
constexpr DType real_type() {
  if constexpr (std::is_same_v<Real, Bf16>) return DType::bf16;
  return sizeof(Real) == 8 ? DType::f64 : DType::f32;
}

/// Bytes of no number, with nothing behind them.
class Poisoned {
 public:
  explicit Poisoned(std::size_t bytes) : memory_(bytes / sizeof(double) + 64), bytes_(bytes) {
    std::memset(memory_.data(), 0xff, memory_.size() * sizeof(double));
  }
  Memory memory() {
    const auto start = reinterpret_cast<std::uintptr_t>(memory_.data());
    return {reinterpret_cast<std::byte*>(memory_.data()) + (256 - start % 256) % 256, bytes_};
  }

 private:
  AlignedVector<double> memory_;
  std::size_t bytes_;
};

template <class Real>
Tensor tensor_of(const Batch& batch, Index channels, const SequenceView<Real>& view) {
  const DType type = real_type<std::remove_const_t<Real>>();
  if (batch.cu_seqlens != nullptr) {
    Tensor tensor = Tensor::contiguous(view.data, type, {batch.cu_seqlens[batch.rows], channels});
    tensor.strides[0] = view.step_stride;
    return tensor;
  }
  Tensor tensor = Tensor::contiguous(view.data, type, {batch.rows, batch.steps, channels});
  tensor.strides = {view.row_stride, view.step_stride, 1};
  return tensor;
}

template <class Real>
SequenceStrides strides_of(const SequenceView<Real>& view) {
  return {view.row_stride, view.step_stride};
}

/// The form of a call with these inputs, but for strides.
template <class Real>
RecurrentForm form_of(const Inputs<Real>& in) {
  RecurrentForm form;
  form.dtype = form.weights = real_type<Real>();
  form.rows = in.rows, form.steps = in.steps;
  form.positions = in.cu_seqlens.empty() ? 0 : in.cu_seqlens.back();
  form.flags.set(CallFlag::lengths, !in.lengths.empty()), form.flags.set(CallFlag::reset, !in.reset.empty());
  form.flags.set(CallFlag::training);
  return form;
}

template <class Real>
std::vector<Tensor> values_of(Recurrent<Real>& network) {
  std::vector<Tensor> tensors;
  for (const auto& parameter : network.parameters()) {
    Tensor tensor = Tensor::contiguous(parameter.value.data(), real_type<Real>(), {});
    Index stride = 1;
    tensor.rank = static_cast<int>(parameter.shape.size());
    for (std::size_t axis = parameter.shape.size(); axis-- > 0; stride *= parameter.shape[axis]) {
      tensor.shape[axis] = parameter.shape[axis];
      tensor.strides[axis] = stride;
    }
    tensors.push_back(tensor);
  }
  return tensors;
}

template <class Real>
Tensor states_of(const RecurrentSpec& spec, Index rows, const std::vector<Real>& values) {
  if (values.empty()) return {};
  return Tensor::contiguous(values.data(), real_type<Real>(),
                            {find_cell(spec.cell).states, spec.layers * spec.directions(), rows, spec.hidden_size});
}

/// Returns the tensors in memory of another type.
template <class Stored, class Real>
std::vector<Tensor> stored_values(Recurrent<Real>& network, std::vector<std::vector<Stored>>& memory) {
  std::vector<Tensor> tensors = values_of(network);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    memory.push_back(converted<Stored>(network.parameters()[i].value));
    tensors[i].data = memory.back().data();
    tensors[i].dtype = real_type<Stored>();
  }
  return tensors;
}

/// How run_program() calls.
struct Calls {
  bool packs_each_call = false;
  bool rounds_y = false;   ///< Backward passes read y as it would be in bfloat16.
  bool projected = false;  ///< x is W x, and the network's weight_ih is left out.
};

/// Runs like run(), by a program over sequences and weights that are stored in some type.
template <class Real, class Stored = Real>
Outputs<Real> run_program(Recurrent<Real>& network, const Inputs<Real>& in, const Execution& execution = {},
                          const Calls& calls = {}) {
  RecurrentSpec spec = network.spec();
  spec.projected_input = calls.projected;
  const std::ptrdiff_t first = calls.projected ? 1 : 0;  // of the parameters that the program has
  const Batch batch = in.batch();
  const Index inputs = spec.input_size, outputs = spec.output_size();
  const auto layout = [&](int place) { return shifted(in.layout, in.mixed ? place : 0); };
  Sequence<Stored> x(batch, inputs, layout(0)), y(batch, outputs, layout(1));
  Sequence<Stored> dx(batch, inputs, layout(2)), dy(batch, outputs, layout(3));
  Sequence<Real> states(batch, other_states(spec), layout(4)), dstates = states;
  x.fill(converted<Stored>(in.x));
  dy.fill(converted<Stored>(in.dy));
  if (in.every_state) dstates.fill(in.dstates);
  RecurrentForm form = form_of(in);
  form.dtype = form.weights = real_type<Stored>();
  form.x = strides_of(x.view()), form.y = strides_of(y.view());
  form.dx = strides_of(dx.view()), form.dy = strides_of(dy.view());
  form.flags.set(CallFlag::every_state, in.every_state);
  form.states = strides_of(states.view());
  form.flags.set(CallFlag::packs_each_call, calls.packs_each_call);
  const auto program = RecurrentProgram::get(spec, form, execution);

  const auto every_state = [&](Sequence<Real>& of) {
    return in.every_state ? tensor_of(batch, other_states(spec), of.view()) : Tensor();
  };
  Outputs<Real> out;
  out.state_out.resize(network.state_size() * in.rows);
  out.dstate_in.resize(in.state_in.size());
  std::vector<std::vector<Stored>> weight_memory;
  std::vector<Tensor> weights = stored_values(network, weight_memory);
  weights.erase(weights.begin(), weights.begin() + first);
  Poisoned tape(program->tape_bytes());
  const Context context{.execution = execution};
  std::uint64_t pass = 0;
  {
    Poisoned workspace(program->workspace_bytes());
    pass = program->forward(context, {.weights = weights,
                                      .batch = batch,
                                      .x = tensor_of(batch, inputs, x.view()),
                                      .y = tensor_of(batch, outputs, y.view()),
                                      .state_in = states_of(spec, in.rows, in.state_in),
                                      .state_out = states_of(spec, in.rows, out.state_out),
                                      .workspace = workspace.memory(),
                                      .tape = tape.memory(),
                                      .packed = {},
                                      .states = every_state(states)});
  }
  if (calls.rounds_y) y.fill(converted<Stored>(converted<Bf16>(converted<float>(y.values()))));
  std::vector<Tensor> gradients = values_of(network);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    out.gradients.emplace_back(network.parameters()[i].name, std::vector<Real>(network.parameters()[i].value.size()));
    gradients[i].data = out.gradients.back().second.data();
  }
  gradients.erase(gradients.begin(), gradients.begin() + first);
  Poisoned workspace(program->workspace_bytes());
  program->backward(context, {.weights = weights,
                              .batch = batch,
                              .x = tensor_of(batch, inputs, x.view()),
                              .y = tensor_of(batch, outputs, y.view()),
                              .dy = tensor_of(batch, outputs, dy.view()),
                              .state_in = states_of(spec, in.rows, in.state_in),
                              .dstate_out = states_of(spec, in.rows, in.dstate_out),
                              .dx = tensor_of(batch, inputs, dx.view()),
                              .dstate_in = states_of(spec, in.rows, out.dstate_in),
                              .gradients = gradients,
                              .workspace = workspace.memory(),
                              .tape = tape.memory(),
                              .pass = pass,
                              .packed = {},
                              .dstates = every_state(dstates)});
  if (in.every_state) {
    EXPECT_TRUE(states.was_written_where_due());
    out.states = states.values();
  }
  EXPECT_TRUE(y.was_written_where_due());
  EXPECT_TRUE(dx.was_written_where_due());
  out.y = converted<Real>(y.values());
  out.dx = converted<Real>(dx.values());
  return out;
}

}  // namespace penstock::test
