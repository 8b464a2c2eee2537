#include "ops/recurrence.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "backend/cpu/kernels.h"
#include "base/aligned.h"
#include "base/check.h"
#include "base/threads.h"
#include "ops/cuda/ops.h"
#include "ops/explain.h"
#include "ops/recurrent.h"
#include "plan/cell_table.h"

namespace penstock::ops {

namespace {

/// Kernels for exact mode are others than the fastest only where products of bfloat16 are made.
bool exact_kernels(const Execution& execution) { return execution.exact || execution.precision != Precision::bf16; }

template <class Real>
RecurrentOp<Real> make(const Recurrence& shape, const Target& target) {
  return RecurrentOp<Real>(plan::cell_traits(shape.cell), shape.input, shape.hidden, shape.heads, shape.reverse,
                           target.execution.precision, exact_kernels(target.execution));
}

template <class Value>
SequenceView<Value> strided(Value* data, const SequenceStrides& strides, const Batch& batch, Index channels) {
  if (strides == SequenceStrides{}) return {data, batch.steps * channels, channels};
  return {data, strides.row, strides.step};
}

/// Some packed rows of a target: how long each of them is changes no size.
std::vector<Index> packed_starts(const Target& target) {
  require(target.packed <= target.rows * target.steps,
          "positions of packed rows must be at most the {} of {} rows of {} steps, not {}", target.rows * target.steps,
          target.rows, target.steps, target.packed);
  std::vector<Index> starts(static_cast<std::size_t>(target.rows) + 1);
  for (std::size_t b = 0; b + 1 < starts.size(); ++b) {
    starts[b + 1] = std::min(starts[b] + target.steps, target.packed);
  }
  return starts;
}

/// Memory that a layer's op wants for a batch of the target's rows and steps, whatever their lengths and resets.
template <class Real, class Size>
std::size_t most_bytes(RecurrentOp<Real>& op, const Recurrence& shape, const Target& target, const Size& size) {
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
    op.prepare(batch, strided<const Real>(nullptr, shape.x_strides, batch, shape.input), target.execution);
    most = std::max(most, size());
  }
  return most * sizeof(Real);
}

/// The recurrent op of a run, with its sizes.
template <class Real>
class CpuRecurrence : public Executable {
 public:
  CpuRecurrence(const Recurrence& shape, const Target& target)
      : shape_(shape), execution_(target.execution), op_(make<Real>(shape, target)) {
    execution_.threads = resolve_threads(target.execution.threads);
  }

  std::size_t scratch_bytes() const override { return scratch_; }

 protected:
  void prepare(const Call& call, const Real* x) {
    const int threads = resolve_threads(call.threads);
    require(threads == execution_.threads, "threads must be {}, for which this program was prepared, not {}",
            execution_.threads, threads);
    op_.prepare(call.batch, strided(x, shape_.x_strides, call.batch, shape_.input), execution_);
  }

  Recurrence shape_;
  Execution execution_;
  RecurrentOp<Real> op_;
  std::size_t scratch_ = 0;
};

template <class Real>
class CpuForward final : public CpuRecurrence<Real> {
 public:
  CpuForward(const Recurrence& shape, const Target& target) : CpuRecurrence<Real>(shape, target) {
    this->scratch_ = most_bytes(this->op_, shape, target, [this] { return this->op_.forward_workspace(); });
    if (target.training) tape_ = most_bytes(this->op_, shape, target, [this] { return this->op_.tape_size(); });
  }
  std::size_t opaque_bytes(int) const override { return tape_; }

  void run(const Call& call, const Operands& memory) override {
    const auto* const x = memory.get<const Real>(0);
    this->prepare(call, x);
    ForwardArguments<Real> arguments;
    arguments.x = strided(x, this->shape_.x_strides, call.batch, this->shape_.input);
    arguments.y = strided(memory.get<Real>(7), this->shape_.y_strides, call.batch, this->shape_.hidden);
    arguments.state_in = memory.get<const Real>(1);
    arguments.state_out = memory.get<Real>(8);
    arguments.state_pitch = this->shape_.state_pitch;
    arguments.weights = {memory.get<const Real>(2), memory.get<const Real>(4), memory.get<const Real>(5),
                         memory.get<const Real>(6)};
    arguments.tape = memory.get<Real>(9);
    if (this->shape_.every_state) {
      arguments.every_state =
          strided(memory.get<Real>(10), this->shape_.state_strides, call.batch, this->shape_.other_states_size());
    }
    this->op_.forward(arguments, static_cast<Real*>(memory.scratch));
  }

 private:
  std::size_t tape_ = 0;
};

/// One step of one row, over and over: what is looked up for a step is looked up now.
template <class Real>
class CpuStep final : public Executable {
 public:
  CpuStep(const Recurrence& shape, const Target& target)
      : hidden_(shape.hidden),
        pitch_(shape.state_pitch * shape.hidden),
        op_(make<Real>(shape, target)),
        states_(plan::cell_traits(shape.cell).info.states),
        workspace_(op_.step_workspace()) {}

  void run(const Call&, const Operands& memory) override {
    const auto* const panels = memory.get<const Real>(6);
    if (panels != panels_) {
      job_ = op_.step_job(panels, workspace_.data());
      panels_ = panels;
    }
    job_.backwards = !job_.backwards;
    job_.x = memory.get<const Real>(0);
    job_.y = memory.get<Real>(7);
    auto* const state = memory.get<Real>(8);
    const auto* const state_in = memory.get<const Real>(1);
    for (Index k = 0; k < states_; ++k) {
      job_.state[k] = state + k * pitch_;
      if (state_in == nullptr) {
        std::fill_n(job_.state[k], hidden_, Real(0));
      } else if (state_in != state) {
        std::copy_n(state_in + k * pitch_, hidden_, job_.state[k]);
      }
    }
    op_.step(job_);
  }

 private:
  Index hidden_, pitch_;
  RecurrentOp<Real> op_;
  Index states_;
  AlignedVector<Real> workspace_;
  const Real* panels_ = nullptr;
  cpu::CellStep<Real> job_ = {};
};

template <class Real>
class CpuBackward final : public CpuRecurrence<Real> {
 public:
  CpuBackward(const Recurrence& shape, const Target& target) : CpuRecurrence<Real>(shape, target) {
    own_ = most_bytes(this->op_, shape, target, [this] { return this->op_.backward_workspace(); });
    const auto dx = static_cast<std::size_t>(target.positions() * shape.input) * sizeof(Real);
    this->scratch_ = own_ + (shape.add_dx ? dx : 0);
  }

  void run(const Call& call, const Operands& memory) override {
    const Recurrence& shape = this->shape_;
    const auto* const x = memory.get<const Real>(0);
    this->prepare(call, x);
    BackwardArguments<Real> arguments;
    arguments.x = strided(x, shape.x_strides, call.batch, shape.input);
    arguments.y = strided(memory.get<const Real>(1), shape.y_strides, call.batch, shape.hidden);
    arguments.dy =
        strided(memory.get<const Real>(2), strides_or(shape.dy_strides, shape.y_strides), call.batch, shape.hidden);
    arguments.state_in = memory.get<const Real>(3);
    arguments.weights = {memory.get<const Real>(4), memory.get<const Real>(6), memory.get<const Real>(7),
                         memory.get<const Real>(8)};
    arguments.tape = memory.get<const Real>(9);
    arguments.dstate_out = memory.get<const Real>(10);
    arguments.dstates = strided(memory.get<const Real>(11), shape.state_strides, call.batch, shape.other_states_size());
    arguments.clip = static_cast<Real>(shape.gradient_clip);
    arguments.gradients = {memory.get<Real>(12), memory.get<Real>(13), memory.get<Real>(14), memory.get<Real>(15)};
    arguments.dstate_in = memory.get<Real>(17);
    arguments.state_pitch = shape.state_pitch;
    if (!shape.add_gradients) clear(arguments.gradients);
    if (auto* const dx = memory.get<Real>(16)) {
      arguments.dx = strided(dx, strides_or(shape.dx_strides, shape.x_strides), call.batch, shape.input);
    }
    auto* const scratch = static_cast<Real*>(memory.scratch);
    if (!shape.add_dx || !arguments.dx) return this->op_.backward(arguments, scratch);
    const SequenceView<Real> sum = arguments.dx;
    arguments.dx = strided(scratch + own_ / sizeof(Real), {}, call.batch, shape.input);
    this->op_.backward(arguments, scratch);
    add(call.batch, arguments.dx, sum);
  }

 private:
  /// to += from [B, T, I], whose padding is zero in both.
  void add(const Batch& batch, const SequenceView<Real>& from, const SequenceView<Real>& to) const {
    const bool packed = batch.cu_seqlens != nullptr;
    const Index rows = packed ? 1 : batch.rows, steps = packed ? batch.cu_seqlens[batch.rows] : batch.steps;
    parallel_for(this->execution_.threads, rows * steps, kPositionsOfThread, [&](Index begin, Index end) {
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
    zero(gradients.bias_ih, gates);
    zero(gradients.bias_hh, gates);
  }

  static constexpr Index kPositionsOfThread = 64;
  std::size_t own_ = 0;  // bytes of scratch that the engines use
};

template <class Real>
class CpuPanels final : public Executable {
 public:
  CpuPanels(const Recurrence& shape, const Target& target, Panels panels)
      : op_(make<Real>(shape, target)), panels_(panels) {}

  std::size_t opaque_bytes(int) const override {
    switch (panels_) {
      case Panels::forward:
        return op_.packed_forward_size() * sizeof(Real);
      case Panels::backward:
        return op_.packed_backward_size() * sizeof(Real);
      case Panels::step:
        return op_.packed_step_size() * sizeof(Real);
    }
    return 0;
  }
  void run(const Call&, const Operands& memory) override {
    const auto* const weight_ih = memory.get<const Real>(0);
    const auto* const weight_hh = memory.get<const Real>(1);
    auto* const packed = memory.get<Real>(4);
    switch (panels_) {
      case Panels::forward:
        return op_.pack_forward(weight_ih, weight_hh, packed);
      case Panels::backward:
        return op_.pack_backward(weight_ih, weight_hh, packed);
      case Panels::step:
        return op_.pack_step({weight_ih, weight_hh, memory.get<const Real>(2), memory.get<const Real>(3)}, packed);
    }
  }

 private:
  RecurrentOp<Real> op_;
  Panels panels_;
};

/// Multiply-adds for each position of `count` products with all weights or of gradients of them.
double products(const Recurrence& shape, int count) {
  const plan::CellTraits& cell = plan::cell_traits(shape.cell);
  const Index fan_in = shape.input + (cell.info.scan ? 0 : shape.hidden / shape.heads);
  return count * static_cast<double>(cell.info.gates * shape.hidden) * static_cast<double>(fan_in);
}

}  // namespace

bool Recurrence::is_scan() const { return plan::cell_traits(cell).info.scan; }

Index Recurrence::state_size() const { return plan::cell_traits(cell).info.states * hidden; }

bool rounds_tape(const Recurrence& shape, const Target& target) {
  if (target.device.is_cuda()) return false;
  return with_real(target.dtype, [&](auto real) { return make<decltype(real)>(shape, target).rounds_tape(); });
}

bool reads_panels(const Target& target) { return !target.device.is_cuda(); }

std::string panels_key(Panels panels, const Target& target) {
  constexpr const char* names[] = {"forward", "backward", "step"};
  return fmt::format("{} {} {} {}", names[static_cast<int>(panels)], to_string(target.execution.precision),
                     exact_kernels(target.execution) ? "exact" : "fast", cpu::isa_generation());
}

Op recurrence_panels(const Recurrence& shape, Panels panels) {
  return {"recurrence.panels", [shape, panels](const Target& target) {
            return with_real(target.dtype, [&](auto real) -> std::unique_ptr<Executable> {
              return std::make_unique<CpuPanels<decltype(real)>>(shape, target, panels);
            });
          }};
}

Op recurrence_forward(const Recurrence& shape) {
  return {shape.cell,
          [shape](const Target& target) {
            if (target.device.is_cuda())
              return shape.is_scan() ? cuda_scan_forward(shape, target) : cuda_dense_forward(shape, target);
            return with_real(target.dtype, [&](auto real) -> std::unique_ptr<Executable> {
              using Real = decltype(real);
              if (target.step) return std::make_unique<CpuStep<Real>>(shape, target);
              return std::make_unique<CpuForward<Real>>(shape, target);
            });
          },
          products(shape, 1),
          [shape](const Target& target, const plan::Machine& machine) {
            return explain_recurrence(shape, false, target, machine);
          }};
}

Op recurrence_backward(const Recurrence& shape, bool wants_dx) {
  return {shape.cell + ".backward",
          [shape, wants_dx](const Target& target) {
            if (target.device.is_cuda()) {
              return shape.is_scan() ? cuda_scan_backward(shape, wants_dx, target)
                                     : cuda_dense_backward(shape, wants_dx, target);
            }
            return with_real(target.dtype, [&](auto real) -> std::unique_ptr<Executable> {
              return std::make_unique<CpuBackward<decltype(real)>>(shape, target);
            });
          },
          products(shape, 2),
          [shape](const Target& target, const plan::Machine& machine) {
            return explain_recurrence(shape, true, target, machine);
          }};
}

}  // namespace penstock::ops
