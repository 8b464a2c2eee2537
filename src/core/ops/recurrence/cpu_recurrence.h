#pragma once

// A recurrent layer on a CPU as an executable. Private to src/core/ops.

#include <algorithm>
#include <array>
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
CpuLayer<Real> make_layer(const Recurrence& form, const Target& target) {
  return CpuLayer<Real>(form, target.execution.precision, exact_kernels(target.execution));
}

/// Makes the layer of a forward pass. Weights that are read in place, unpacked, are not rounded: rounding takes longer
/// than the product.
template <class Real>
CpuLayer<Real> make_forward(const Recurrence& form, const Target& target) {
  if (reads_panels(form, forward_panels(target), target)) return make_layer<Real>(form, target);
  return CpuLayer<Real>(form, Precision::full, true, false);
}

/// Returns the form with strides in place of those that stand for contiguous sequences and for "like x" or "like y".
inline Recurrence with_strides(Recurrence form, const Target& target) {
  const auto contiguous = [&](Index channels) { return SequenceStrides{target.steps * channels, channels}; };
  form.x_strides = strides_or(form.x_strides, contiguous(form.input));
  form.y_strides = strides_or(form.y_strides, contiguous(form.hidden));
  form.dx_strides = strides_or(form.dx_strides, form.x_strides);
  form.dy_strides = strides_or(form.dy_strides, form.y_strides);
  if (form.every_state) form.state_strides = strides_or(form.state_strides, contiguous(form.other_states_size()));
  return form;
}

/// Some packed rows of a target: how long each of them is changes no size.
std::vector<Index> packed_starts(const Target& target);

/// Memory that a layer wants for a batch of the target's rows and steps, whatever their lengths and resets.
template <class Real, class Size>
std::size_t most_bytes(CpuLayer<Real>& layer, const Target& target, const Size& size) {
  const auto rows = static_cast<std::size_t>(target.rows);
  const std::vector<Index> lengths(target.has(CallFlag::lengths) ? rows : 0, target.steps);
  const std::vector<Index> starts = target.packed > 0 ? packed_starts(target) : std::vector<Index>();
  const std::vector<std::uint8_t> reset(static_cast<std::size_t>(target.has(CallFlag::reset) ? target.positions() : 0),
                                        0);
  std::size_t most = 0;
  for (const bool ragged : {false, true}) {
    if (ragged && !target.has(CallFlag::lengths)) continue;
    const Batch batch = {.rows = target.rows,
                         .steps = target.steps,
                         .lengths = ragged ? lengths.data() : nullptr,
                         .cu_seqlens = starts.empty() ? nullptr : starts.data(),
                         .reset = target.has(CallFlag::reset) ? reset.data() : nullptr};
    layer.prepare(batch, target.execution);
    most = std::max(most, size());
  }
  return most * sizeof(Real);
}

/// The layer of a run, with its sizes.
template <class Real>
class CpuRecurrence : public Executable {
 public:
  /// `make`: returns the layer of a form and a target.
  template <class Make>
  CpuRecurrence(const Recurrence& form, const Target& target, const Make& make)
      : form_(with_strides(form, target)), execution_(target.execution), layer_(make(form_, target)) {
    execution_.threads = resolve_threads(target.execution.threads);
  }

  std::size_t scratch_bytes() const override { return scratch_; }
  const CpuLayer<Real>& layer() const { return layer_; }

  /// Reads the batch of a call.
  void begin(const Call& call) {
    const int threads = resolve_threads(call.threads);
    require_argument(threads == execution_.threads, "threads", threads, "{}, for which this program was prepared",
                     execution_.threads);
    layer_.prepare(call.batch, execution_);
  }

 protected:
  Recurrence form_;
  Execution execution_;
  CpuLayer<Real> layer_;
  std::size_t scratch_ = 0;
};

template <class Real>
class CpuForward final : public CpuRecurrence<Real> {
 public:
  CpuForward(const Recurrence& form, const Target& target) : CpuRecurrence<Real>(form, target, make_forward<Real>) {
    this->scratch_ = most_bytes(this->layer_, target, [this] { return this->layer_.forward_workspace(); });
    if (target.has(CallFlag::training))
      tape_ = most_bytes(this->layer_, target, [this] { return this->layer_.tape_size(); });
  }
  std::size_t opaque_bytes(int) const override { return tape_; }

  void run(const Call& call, const Operands& memory) override {
    this->begin(call);
    run_steps(call, memory, this->layer_.all_steps());
  }

  /// A range of the steps of a call that has begun (CpuLayer::forward).
  void run_steps(const Call&, const Operands& memory, StepRange range) {
    this->layer_.forward({{this->form_, memory.values}}, static_cast<Real*>(memory.scratch), range);
  }

 private:
  std::size_t tape_ = 0;
};

template <class Real>
class CpuBackward final : public CpuRecurrence<Real> {
  using Of = BackwardOperand;

 public:
  CpuBackward(const Recurrence& form, const Target& target)
      : CpuRecurrence<Real>(form, target, make_layer<Real>), apart_(this->form_) {
    require(!form.add_dx || !form.bf16_x, "a gradient that is added to must be of f32, not bf16");
    apart_.dx_strides = {target.steps * form.input, form.input};
    own_ = most_bytes(this->layer_, target, [this] { return this->layer_.backward_workspace(); });
    const auto dx = static_cast<std::size_t>(target.positions() * form.input) * sizeof(Real);
    this->scratch_ = own_ + (form.add_dx ? dx : 0);
  }

  void run(const Call& call, const Operands& memory) override {
    this->begin(call);
    run_steps(call, memory, this->layer_.all_steps());
  }

  /// A range of the steps of a call that has begun (CpuLayer::backward).
  void run_steps(const Call& call, const Operands& memory, StepRange range) {
    const BackwardPointers<Real> pointers{{this->form_, memory.values}};
    auto* const scratch = static_cast<Real*>(memory.scratch);
    if (!this->form_.add_gradients && range.end == call.batch.steps) clear(pointers);
    if (!this->form_.add_dx || !pointers.dx()) return this->layer_.backward(pointers, scratch, range);
    // The engines write their dx behind their own scratch.
    std::array<void*, Of::count> operands;
    std::copy_n(memory.values, operands.size(), operands.begin());
    operands[Of::dx] = scratch + own_ / sizeof(Real);
    const BackwardPointers<Real> apart{{apart_, operands.data()}};
    this->layer_.backward(apart, scratch, range);
    if (range.begin == 0) add(call.batch, apart.dx(), pointers.dx());
  }

 private:
  /// to += from [B, T, I], whose padding is zero in both.
  void add(const Batch& batch, const SequenceView<Real>& from, const SequenceView<Real>& to) const {
    const bool packed = batch.cu_seqlens != nullptr;
    const Index rows = packed ? 1 : batch.rows, steps = packed ? batch.cu_seqlens[batch.rows] : batch.steps;
    for_range(this->execution_.threads, rows * steps, this->form_.input, [&](Index begin, Index end) {
      for (Index i = begin; i < end; ++i) {
        const Real* const term = from.data + i / steps * from.row_stride + i % steps * from.step_stride;
        Real* const sum = to.data + i / steps * to.row_stride + i % steps * to.step_stride;
        for (Index c = 0; c < this->form_.input; ++c) sum[c] += term[c];
      }
    });
  }

  /// Zeros in the gradients, to which the engines add.
  void clear(const BackwardPointers<Real>& call) const {
    const Recurrence& form = this->form_;
    const plan::CellTraits& cell = plan::cell_traits(form.cell);
    const Index gates = cell.info.gates * form.hidden;
    const auto zero = [](Real* values, Index count) {
      if (values != nullptr) std::fill_n(values, count, Real(0));
    };
    zero(call.dweight_ih(), gates * form.input);
    zero(call.dweight_hh(), gates * (form.hidden / form.heads));
    zero(call.dbias_ih(), cell.bias_vectors() * form.hidden);
    zero(call.dbias_hh(), gates);
  }

  Recurrence apart_;     // the form with a dx of its own
  std::size_t own_ = 0;  // bytes of scratch that the engines use
};

}  // namespace penstock::ops
