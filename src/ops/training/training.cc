#include "ops/training/training.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/counter_random.h"
#include "ops/cuda/ops.h"
#include "ops/pointwise/elementwise.h"
#include "ops/training/loss.h"
#include "ops/training/on_cpu.h"

namespace penstock::cuda {

inline double StepCosPi(double x) { return std::cos(std::numbers::pi * x); }

// One text for kernels and for the CPU.
#define PENSTOCK_STEP inline
#include "backend/cuda/kernels/pointwise/training/step_rules.h"
#undef PENSTOCK_STEP

}  // namespace penstock::cuda

namespace penstock::ops {

namespace {

/// The loss of a batch and its gradient, by ops/training/loss.h.
LossSums compute_loss(const LossShape& shape, int threads, Index positions, const float* outputs,
                      const std::int32_t* labels, const float* targets, const float* weights, float* gradient,
                      void* scratch) {
  const LossScratch places = LossScratch::in(scratch, positions);
  LossSum sum;
  if (shape.kind == LossKind::cross_entropy) {
    sum = cross_entropy(threads, positions, shape.width, outputs, labels, gradient, places);
  } else {
    const auto regression = shape.kind == LossKind::mse ? mean_squared_error : mean_absolute_error;
    sum = regression(threads, positions, shape.width, outputs, targets, weights, gradient, places);
  }
  LossSums result{};
  result.sum = sum.sum;
  result.weight = sum.weight;
  result.scored = sum.scored;
  result.correct = sum.correct;
  return result;
}

}  // namespace

StepState first_step_state(float loss_scale) {
  StepState state{};
  state.loss_scale = loss_scale;
  return state;
}

double step_rate(const StepRules& rules, double fraction) {
  return cuda::StepRate(rules, std::clamp(fraction, 0.0, 1.0));
}

Op begin_step(const StepRules& rules) {
  return {"begin_step", [rules](const Target& target) {
            if (target.device.is_cuda()) return cuda_begin_step(rules, target);
            return on_cpu(target, [rules](const Call&, const Operands& memory) {
              cuda::BeginStepOf(*memory.get<StepState>(BeginStepOperand::state), rules,
                                *memory.get<const double>(BeginStepOperand::time_fraction));
            });
          }};
}

Op loss(const LossShape& shape) {
  using Of = LossOperand;
  return {"loss", [shape](const Target& target) {
            if (target.device.is_cuda()) return cuda_loss(shape, target);
            return on_cpu(
                target,
                [shape](const Call& call, const Operands& memory) {
                  StepState& state = *memory.get<StepState>(Of::state);
                  const Index positions = call.batch.rows * call.batch.steps;
                  const auto* const outputs = memory.get<const float>(Of::outputs);
                  state.loss =
                      compute_loss(shape, call.threads, positions, outputs, memory.get<const std::int32_t>(Of::labels),
                                   memory.get<const float>(Of::targets), memory.get<const float>(Of::weights),
                                   memory.get<float>(Of::doutputs), memory.scratch);
                  if (!all_finite(call.threads, positions * shape.width, outputs)) {
                    state.loss.broken |= cuda::kBrokenOutput;
                  }
                },
                LossScratch::bytes(target.positions()));
          }};
}

Op check_finite(Index width) {
  using Of = CheckFiniteOperand;
  return {"check_finite", [width](const Target& target) {
            if (target.device.is_cuda()) return cuda_check_finite(width, target);
            return on_cpu(target, [width](const Call& call, const Operands& memory) {
              if (all_finite(call.threads, call.batch.rows * width, memory.get<const float>(Of::values))) return;
              memory.get<StepState>(Of::state)->broken |= cuda::kBrokenOutput;
            });
          }};
}

Op sum_squares(Index size, const SquareRanges& ranges) {
  using Of = SumSquaresOperand;
  return {"sum_squares", [size, ranges](const Target& target) {
            if (target.device.is_cuda()) return cuda_sum_squares(size, ranges, target);
            return on_cpu(
                target,
                [size, ranges](const Call& call, const Operands& memory) {
                  const auto squares = [&](Index begin, Index end) {
                    return sum_of_squares(call.threads, end - begin, memory.get<const float>(Of::gradients) + begin,
                                          static_cast<double*>(memory.scratch));
                  };
                  StepState& state = *memory.get<StepState>(Of::state);
                  state.first_squares = squares(ranges.first_begin, ranges.first_end);
                  state.last_squares = squares(ranges.last_begin, ranges.last_end);
                  state.gradient_squares = squares(0, ranges.first_begin) + state.first_squares +
                                           squares(ranges.first_end, ranges.last_begin) + state.last_squares +
                                           squares(ranges.last_end, size);
                },
                static_cast<std::size_t>(square_parts(size)) * sizeof(double));
          }};
}

Op decide(const StepRules& rules) {
  return {"decide", [rules](const Target& target) {
            if (target.device.is_cuda()) return cuda_decide(rules, target);
            return on_cpu(target, [rules](const Call&, const Operands& memory) {
              cuda::DecideStep(*memory.get<StepState>(DecideOperand::state), rules);
            });
          }};
}

Op keep_state(Index width) {
  return {"keep_state", [width](const Target& target) {
            if (target.device.is_cuda()) return cuda_keep_state(width, target);
            return on_cpu(target, [width](const Call& call, const Operands& memory) {
              if (memory.get<const StepState>(KeepStateOperand::state)->keep == 0) return;
              std::copy_n(memory.get<const float>(KeepStateOperand::from), call.batch.rows * width,
                          memory.get<float>(KeepStateOperand::to));
            });
          }};
}

void add_loss(LossSums& total, const LossSums& loss) { cuda::AddLoss(total, loss); }

}  // namespace penstock::ops
