#include "ops/recurrence/recurrence.h"

#include <algorithm>
#include <vector>

#include "backend/cpu/instruction_sets.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/machine.h"
#include "base/aligned.h"
#include "base/check.h"
#include "base/threads.h"
#include "ops/cuda/ops.h"
#include "ops/recurrence/cpu_layer.h"
#include "ops/recurrence/cpu_recurrence.h"
#include "ops/recurrence/explain.h"
#include "plan/cell_table.h"

namespace penstock::ops {

namespace {

/// One step of one row, over and over: what is looked up for a step is looked up now.
template <class Real>
class CpuStep final : public Executable {
  using Of = ForwardOperand;

 public:
  CpuStep(const Recurrence& shape, const Target& target)
      : hidden_(shape.hidden),
        pitch_(shape.state_pitch * shape.hidden),
        layer_(make_layer<Real>(shape, target)),
        states_(plan::cell_traits(shape.cell).info.states),
        workspace_(layer_.step_workspace()) {}

  void run(const Call&, const Operands& memory) override {
    const auto* const panels = memory.get<const Real>(Of::panels);
    if (panels != panels_) prepare(panels);
    job_.backwards = !job_.backwards;
    job_.x = memory.get<const Real>(Of::x);
    job_.y = memory.get<Real>(Of::y);
    auto* const state = memory.get<Real>(Of::state_out);
    const auto* const state_in = memory.get<const Real>(Of::state_in);
    if (job_.state[0] != state) {
      for (Index k = 0; k < states_; ++k) job_.state[k] = state + k * pitch_;
    }
    if (state_in != state) copy_state(state_in);
    layer_.step(job_);
  }

 private:
  void prepare(const Real* panels) {
    job_ = layer_.step_job(panels, workspace_.data());
    panels_ = panels;
  }

  /// `from` [S, H], S apart by pitch_; null: zeros.
  void copy_state(const Real* from) {
    for (Index k = 0; k < states_; ++k) {
      if (from == nullptr) {
        std::fill_n(job_.state[k], hidden_, Real(0));
      } else {
        std::copy_n(from + k * pitch_, hidden_, job_.state[k]);
      }
    }
  }

  Index hidden_, pitch_;
  CpuLayer<Real> layer_;
  Index states_;
  AlignedVector<Real> workspace_;
  const Real* panels_ = nullptr;
  cpu::CustomStep<Real> job_ = {};
};

template <class Real>
class CpuPanels final : public Executable {
  using Of = PanelsOperand;

 public:
  CpuPanels(const Recurrence& shape, const Target& target, Panels panels)
      : layer_(make_layer<Real>(shape, target)),
        threads_(resolve_threads(target.execution.threads)),
        panels_(panels),
        bf16_(shape.bf16_weights),
        int8_(shape.int8) {}

  std::size_t opaque_bytes(int) const override {
    switch (panels_) {
      case Panels::forward:
        return layer_.packed_forward_size() * sizeof(Real);
      case Panels::backward:
        return layer_.packed_backward_size() * sizeof(Real);
      case Panels::step:
        return layer_.packed_step_size() * sizeof(Real);
    }
    return 0;
  }
  void run(const Call&, const Operands& memory) override {
    const StoredWeights weight_ih = stored_weights(memory, Of::weight_ih, Of::scale_ih),
                        weight_hh = stored_weights(memory, Of::weight_hh, Of::scale_hh);
    auto* const packed = memory.get<Real>(int8_ ? Of::int8_panels : Of::panels);
    switch (panels_) {
      case Panels::forward:
        return layer_.pack_forward(weight_ih, weight_hh, packed, threads_);
      case Panels::backward:
        return layer_.pack_backward(weight_ih, weight_hh, packed, threads_);
      case Panels::step:
        return layer_.pack_step({weight_ih.reals, weight_hh.reals, memory.get<const Real>(Of::bias_ih),
                                 memory.get<const Real>(Of::bias_hh), weight_ih.int8, weight_hh.int8},
                                packed);
    }
  }

 private:
  using StoredWeights = typename CpuLayer<Real>::StoredWeights;

  StoredWeights stored_weights(const Operands& memory, int i, int scale) const {
    if (int8_) return {nullptr, nullptr, {memory.get<const std::int8_t>(i), memory.get<const float>(scale)}};
    if (bf16_) return {nullptr, memory.get<const std::uint16_t>(i)};
    return {memory.get<const Real>(i), nullptr};
  }

  CpuLayer<Real> layer_;
  int threads_;
  Panels panels_;
  bool bf16_, int8_;
};

/// Multiply-adds for each position of `count` products with all weights or of gradients of them.
double products(const Recurrence& shape, int count) {
  const plan::CellTraits& cell = plan::cell_traits(shape.cell);
  const Index fan_in = (shape.projected ? 0 : shape.input) + (cell.info.scan ? 0 : shape.hidden / shape.heads);
  return count * static_cast<double>(cell.info.gates * shape.hidden) * static_cast<double>(fan_in);
}

}  // namespace

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

bool Recurrence::is_scan() const { return plan::cell_traits(cell).info.scan; }

Index Recurrence::state_size() const { return plan::cell_traits(cell).info.states * hidden; }

std::pair<std::vector<Index>, std::vector<Index>> matrix_extents(const Recurrence& shape) {
  const plan::CellTraits& traits = plan::cell_traits(shape.cell);
  const Index gates = traits.info.gates * shape.hidden, head = shape.hidden / shape.heads;
  std::vector<Index> of_state;
  if (!traits.info.scan) of_state = {gates, head};
  if (shape.heads > 1) of_state = {shape.heads, gates / shape.heads, head};
  return {std::vector<Index>{gates, shape.input}, std::move(of_state)};
}

bool rounds_tape(const Recurrence& shape, const Target& target) {
  if (target.device.is_cuda()) return false;
  return with_real(target.dtype, [&](auto real) { return make_layer<decltype(real)>(shape, target).rounds_tape(); });
}

bool takes_bf16(const Recurrence& shape, bool backward, const Target& target) {
  if (target.device.is_cuda() || target.dtype != DType::f32 || target.has(CallFlag::step) || shape.projected)
    return false;
  return backward ? make_layer<float>(shape, target).takes_bf16_backward()
                  : make_forward<float>(shape, target).takes_bf16_forward();
}

bool reads_panels(const Recurrence& shape, Panels panels, const Target& target) {
  if (target.device.is_cuda()) return false;
  if (!target.has(CallFlag::packs_each_call) || panels != Panels::forward || shape.is_scan() || shape.projected ||
      target.execution.exact)
    return true;
  return plan::packing_pays(target.steps, target.positions(), cpu::machine());
}

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
              if (target.has(CallFlag::step)) return std::make_unique<CpuStep<Real>>(shape, target);
              return std::make_unique<CpuForward<Real>>(shape, target);
            });
          },
          products(shape, 1),
          [shape](const Target& target, const plan::Machine& machine) {
            return explain_recurrence(shape, false, target, machine);
          },
          shape};
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
