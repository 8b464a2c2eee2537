#pragma once

// A recurrent layer on a CPU as an executable. Private to src/core/ops.

#include <algorithm>
#include <utility>
#include <vector>

#include "backend/cpu/kernels.h"
#include "base/check.h"
#include "base/threads.h"
#include "ops/pointwise/elementwise.h"
#include "ops/recurrence/cpu_layer.h"
#include "ops/recurrence/recurrence.h"
#include "plan/cell_table.h"

namespace penstock::ops {

/// Kernels for exact mode are others than the fastest only where products of bfloat16 are made.
inline bool exact_kernels(const Execution& execution) {
  return execution.exact || execution.precision != Precision::bf16;
}

template <class Real>
CpuLayer<Real> make_layer(const Recurrence& shape, const Target& target) {
  return CpuLayer<Real>(plan::cell_traits(shape.cell), shape.input, shape.hidden, shape.heads, shape.reverse,
                        target.execution.precision, exact_kernels(target.execution));
}

/// Makes the layer of a forward pass. Weights that are read in place, unpacked, are not rounded: rounding takes longer
/// than the product.
template <class Real>
CpuLayer<Real> make_forward(const Recurrence& shape, const Target& target) {
  const Panels panels = forward_panels(target);
  if (reads_panels(shape, panels, target)) return make_layer<Real>(shape, target);
  return CpuLayer<Real>(plan::cell_traits(shape.cell), shape.input, shape.hidden, shape.heads, shape.reverse,
                        Precision::full, true, false);
}

template <class Value>
SequenceView<Value> strided(Value* data, const SequenceStrides& strides, const Batch& batch, Index channels) {
  if (strides == SequenceStrides{}) return {data, batch.steps * channels, channels};
  return {data, strides.row, strides.step};
}

/// A sequence among the operands, of bfloat16 or of Reals; null where it is absent.
template <class Real>
StoredView<Real> stored(void* data, bool is_bf16, const SequenceStrides& strides, const Batch& batch, Index channels) {
  StoredView<Real> view{strided(is_bf16 ? nullptr : static_cast<Real*>(data), strides, batch, channels)};
  if (is_bf16) view.bf16 = static_cast<cpu::Bf16Of<Real>*>(data);
  return view;
}

/// Some packed rows of a target: how long each of them is changes no size.
std::vector<Index> packed_starts(const Target& target);

/// Memory that a layer wants for a batch of the target's rows and steps, whatever their lengths and resets.
template <class Real, class Size>
std::size_t most_bytes(CpuLayer<Real>& layer, const Recurrence& shape, const Target& target, const Size& size) {
  const auto rows = static_cast<std::size_t>(target.rows);
  const std::vector<Index> lengths(target.lengths ? rows : 0, target.steps);
  const std::vector<Index> starts = target.packed > 0 ? packed_starts(target) : std::vector<Index>();
  const std::vector<std::uint8_t> reset(static_cast<std::size_t>(target.reset ? target.positions() : 0), 0);
  std::size_t most = 0;
  for (const bool ragged : {false, true}) {
    if (ragged && !target.lengths) continue;
    const Batch batch = {.rows = target.rows,
                         .steps = target.steps,
                         .lengths = ragged ? lengths.data() : nullptr,
                         .cu_seqlens = starts.empty() ? nullptr : starts.data(),
                         .reset = target.reset ? reset.data() : nullptr};
    layer.prepare(batch, strided<const Real>(nullptr, shape.x_strides, batch, shape.input), target.execution);
    most = std::max(most, size());
  }
  return most * sizeof(Real);
}

/// The layer of a run, with its sizes.
template <class Real>
class CpuRecurrence : public Executable {
 public:
  CpuRecurrence(const Recurrence& shape, const Target& target, CpuLayer<Real> layer)
      : shape_(shape), execution_(target.execution), layer_(std::move(layer)) {
    execution_.threads = resolve_threads(target.execution.threads);
  }

  std::size_t scratch_bytes() const override { return scratch_; }
  const CpuLayer<Real>& layer() const { return layer_; }

  /// Reads the batch of a call.
  void begin(const Call& call, const Operands& memory) {
    const int threads = resolve_threads(call.threads);
    require(threads == execution_.threads, "threads must be {}, for which this program was prepared, not {}",
            execution_.threads, threads);
    layer_.prepare(call.batch,
                   strided(memory.get<const Real>(ForwardOperand::x), shape_.x_strides, call.batch, shape_.input),
                   execution_);
  }

 protected:
  Recurrence shape_;
  Execution execution_;
  CpuLayer<Real> layer_;
  std::size_t scratch_ = 0;
};

template <class Real>
class CpuForward final : public CpuRecurrence<Real> {
  using Of = ForwardOperand;

 public:
  CpuForward(const Recurrence& shape, const Target& target)
      : CpuRecurrence<Real>(shape, target, make_forward<Real>(shape, target)) {
    this->scratch_ = most_bytes(this->layer_, shape, target, [this] { return this->layer_.forward_workspace(); });
    if (target.training) tape_ = most_bytes(this->layer_, shape, target, [this] { return this->layer_.tape_size(); });
  }
  std::size_t opaque_bytes(int) const override { return tape_; }

  void run(const Call& call, const Operands& memory) override {
    this->begin(call, memory);
    run_steps(call, memory, this->layer_.all_steps());
  }

  /// A range of the steps of a call that has begun (CpuLayer::forward).
  void run_steps(const Call& call, const Operands& memory, StepRange range) {
    ForwardArguments<Real> arguments;
    const Recurrence& shape = this->shape_;
    arguments.x = stored<const Real>(memory.values[Of::x], shape.bf16_x, shape.x_strides, call.batch, shape.input);
    arguments.y = stored<Real>(memory.values[Of::y], shape.bf16_y, shape.y_strides, call.batch, shape.hidden);
    arguments.state_in = memory.get<const Real>(Of::state_in);
    arguments.state_out = memory.get<Real>(Of::state_out);
    arguments.state_pitch = shape.state_pitch;
    arguments.weights = {memory.get<const Real>(Of::weight_ih), memory.get<const Real>(Of::weight_hh),
                         memory.get<const Real>(Of::bias_ih), memory.get<const Real>(Of::bias_hh),
                         memory.get<const Real>(Of::panels)};
    arguments.tape = memory.get<Real>(Of::tape);
    if (shape.every_state) {
      arguments.every_state =
          strided(memory.get<Real>(Of::states), shape.state_strides, call.batch, shape.other_states_size());
    }
    this->layer_.forward(arguments, static_cast<Real*>(memory.scratch), range);
  }

 private:
  std::size_t tape_ = 0;
};

template <class Real>
class CpuBackward final : public CpuRecurrence<Real> {
  using Of = BackwardOperand;

 public:
  CpuBackward(const Recurrence& shape, const Target& target)
      : CpuRecurrence<Real>(shape, target, make_layer<Real>(shape, target)) {
    require(!shape.add_dx || !shape.bf16_x, "a gradient that is added to must be of f32, not bf16");
    own_ = most_bytes(this->layer_, shape, target, [this] { return this->layer_.backward_workspace(); });
    const auto dx = static_cast<std::size_t>(target.positions() * shape.input) * sizeof(Real);
    this->scratch_ = own_ + (shape.add_dx ? dx : 0);
  }

  void run(const Call& call, const Operands& memory) override {
    this->begin(call, memory);
    run_steps(call, memory, this->layer_.all_steps());
  }

  /// A range of the steps of a call that has begun (CpuLayer::backward).
  void run_steps(const Call& call, const Operands& memory, StepRange range) {
    const Recurrence& shape = this->shape_;
    BackwardArguments<Real> arguments;
    const SequenceStrides& of_dy = strides_or(shape.dy_strides, shape.y_strides);
    const SequenceStrides& of_dx = strides_or(shape.dx_strides, shape.x_strides);
    arguments.x = stored<const Real>(memory.values[Of::x], shape.bf16_x, shape.x_strides, call.batch, shape.input);
    arguments.y = stored<const Real>(memory.values[Of::y], shape.bf16_y, shape.y_strides, call.batch, shape.hidden);
    arguments.dy = stored<const Real>(memory.values[Of::dy], shape.bf16_y, of_dy, call.batch, shape.hidden);
    arguments.state_in = memory.get<const Real>(Of::state_in);
    arguments.weights = {memory.get<const Real>(Of::weight_ih), memory.get<const Real>(Of::weight_hh),
                         memory.get<const Real>(Of::bias_ih), memory.get<const Real>(Of::bias_hh),
                         memory.get<const Real>(Of::panels)};
    arguments.tape = memory.get<const Real>(Of::tape);
    arguments.dstate_out = memory.get<const Real>(Of::dstate_out);
    if (shape.every_state) {
      arguments.dstates =
          strided(memory.get<const Real>(Of::dstates), shape.state_strides, call.batch, shape.other_states_size());
    }
    arguments.clip = static_cast<Real>(shape.gradient_clip);
    arguments.gradients = {memory.get<Real>(Of::dweight_ih), memory.get<Real>(Of::dweight_hh),
                           memory.get<Real>(Of::dbias_ih), memory.get<Real>(Of::dbias_hh)};
    arguments.dstate_in = memory.get<Real>(Of::dstate_in);
    arguments.state_pitch = shape.state_pitch;
    if (!shape.add_gradients && range.end == call.batch.steps) clear(arguments.gradients);
    if (memory.values[Of::dx] != nullptr) {
      arguments.dx = stored<Real>(memory.values[Of::dx], shape.bf16_x, of_dx, call.batch, shape.input);
    }
    auto* const scratch = static_cast<Real*>(memory.scratch);
    if (!shape.add_dx || !arguments.dx) return this->layer_.backward(arguments, scratch, range);
    const SequenceView<Real> sum = {arguments.dx.data, arguments.dx.row_stride, arguments.dx.step_stride};
    arguments.dx = {strided(scratch + own_ / sizeof(Real), {}, call.batch, shape.input)};
    this->layer_.backward(arguments, scratch, range);
    if (range.begin == 0) add(call.batch, arguments.dx, sum);
  }

 private:
  /// to += from [B, T, I], whose padding is zero in both.
  void add(const Batch& batch, const SequenceView<Real>& from, const SequenceView<Real>& to) const {
    const bool packed = batch.cu_seqlens != nullptr;
    const Index rows = packed ? 1 : batch.rows, steps = packed ? batch.cu_seqlens[batch.rows] : batch.steps;
    for_range(this->execution_.threads, rows * steps, this->shape_.input, [&](Index begin, Index end) {
      for (Index i = begin; i < end; ++i) {
        const Real* const term = from.data + i / steps * from.row_stride + i % steps * from.step_stride;
        Real* const sum = to.data + i / steps * to.row_stride + i % steps * to.step_stride;
        for (Index c = 0; c < this->shape_.input; ++c) sum[c] += term[c];
      }
    });
  }

  /// Zeros in the gradients, to which the engines add.
  void clear(const Gradients<Real>& gradients) const {
    const Recurrence& shape = this->shape_;
    const Index gates = plan::cell_traits(shape.cell).info.gates * shape.hidden;
    const auto zero = [](Real* values, Index count) {
      if (values != nullptr) std::fill_n(values, count, Real(0));
    };
    zero(gradients.weight_ih, gates * shape.input);
    zero(gradients.weight_hh, gates * (shape.hidden / shape.heads));
    zero(gradients.bias_ih, plan::cell_traits(shape.cell).bias_vectors() * shape.hidden);
    zero(gradients.bias_hh, gates);
  }

  std::size_t own_ = 0;  // bytes of scratch that the engines use
};

}  // namespace penstock::ops
