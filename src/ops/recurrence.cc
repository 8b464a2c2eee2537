#include "ops/recurrence.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "backend/cpu/kernels.h"
#include "base/aligned.h"
#include "base/check.h"
#include "base/threads.h"
#include "ops/cuda/ops.h"
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

/// Memory that a layer's op wants for a batch of the target's rows and steps, whatever their lengths and resets.
template <class Real, class Size>
std::size_t most_bytes(RecurrentOp<Real>& op, const Recurrence& shape, const Target& target, const Size& size) {
  const auto x = SequenceView<const Real>::batch_first(nullptr, target.steps, shape.input);
  const std::vector<Index> lengths(static_cast<std::size_t>(target.rows), target.steps);
  const std::vector<std::uint8_t> reset(static_cast<std::size_t>(target.reset ? target.positions() : 0), 0);
  std::size_t most = 0;
  for (const bool ragged : {false, true}) {
    if (ragged && !target.lengths) continue;
    op.prepare({.rows = target.rows,
                .steps = target.steps,
                .lengths = ragged ? lengths.data() : nullptr,
                .reset = target.reset ? reset.data() : nullptr},
               x, target.execution);
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
    op_.prepare(call.batch, view(x, call, shape_.input), execution_);
  }
  template <class Value>
  static SequenceView<Value> view(Value* data, const Call& call, Index channels) {
    return data == nullptr ? SequenceView<Value>{} : SequenceView<Value>::batch_first(data, call.batch.steps, channels);
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
    arguments.x = this->view(x, call, this->shape_.input);
    arguments.y = this->view(memory.get<Real>(7), call, this->shape_.hidden);
    arguments.state_in = memory.get<const Real>(1);
    arguments.state_out = memory.get<Real>(8);
    arguments.weights = {memory.get<const Real>(2), memory.get<const Real>(4), memory.get<const Real>(5),
                         memory.get<const Real>(6)};
    arguments.tape = memory.get<Real>(9);
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
    if (state_in != state) std::copy_n(state_in, states_ * hidden_, state);
    for (Index k = 0; k < states_; ++k) job_.state[k] = state + k * hidden_;
    op_.step(job_);
  }

 private:
  Index hidden_;
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
    this->scratch_ = most_bytes(this->op_, shape, target, [this] { return this->op_.backward_workspace(); });
  }

  void run(const Call& call, const Operands& memory) override {
    const auto* const x = memory.get<const Real>(0);
    this->prepare(call, x);
    BackwardArguments<Real> arguments;
    arguments.x = this->view(x, call, this->shape_.input);
    arguments.y = this->view(memory.get<const Real>(1), call, this->shape_.hidden);
    arguments.dy = this->view(memory.get<const Real>(2), call, this->shape_.hidden);
    arguments.state_in = memory.get<const Real>(3);
    arguments.weights = {memory.get<const Real>(4), memory.get<const Real>(6), memory.get<const Real>(7),
                         memory.get<const Real>(8)};
    arguments.tape = memory.get<const Real>(9);
    arguments.gradients = {memory.get<Real>(10), memory.get<Real>(11), memory.get<Real>(12), memory.get<Real>(13)};
    arguments.dx = this->view(memory.get<Real>(14), call, this->shape_.input);
    clear(arguments.gradients);
    this->op_.backward(arguments, static_cast<Real*>(memory.scratch));
  }

 private:
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
          products(shape, 1)};
}

Op recurrence_backward(const Recurrence& shape) {
  return {shape.cell + ".backward",
          [shape](const Target& target) {
            if (target.device.is_cuda())
              return shape.is_scan() ? cuda_scan_backward(shape, target) : cuda_dense_backward(shape, target);
            return with_real(target.dtype, [&](auto real) -> std::unique_ptr<Executable> {
              return std::make_unique<CpuBackward<decltype(real)>>(shape, target);
            });
          },
          products(shape, 2)};
}

}  // namespace penstock::ops
