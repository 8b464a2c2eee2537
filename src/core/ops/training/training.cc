#include "ops/training/training.h"

#include <algorithm>
#include <cmath>

#include "base/counter_random.h"
#include "ops/cuda/ops.h"
#include "ops/pointwise/elementwise.h"
#include "ops/training/loss.h"
#include "ops/training/on_cpu.h"
#include "ops/training/sound_loss.h"

namespace penstock {

// One text for kernels and for the CPU.
#define PENSTOCK_STEP inline
#include "base/training/step_rules.h"
#undef PENSTOCK_STEP

namespace ops {

namespace {

/// The loss of a batch and its gradient, by ops/training/loss.h and sound_loss.h.
void run_loss(const LossShape& shape, const Call& call, const Operands& memory) {
  using Of = LossOperand;
  const Index positions = call.batch.rows * call.batch.steps;
  const LossScratch places = LossScratch::in(memory.scratch, positions);
  const auto* const outputs = memory.get<const float>(Of::outputs);
  auto* const gradient = memory.get<float>(Of::doutputs);
  LossSum sum;
  if (shape.kind == LossKind::cross_entropy) {
    const auto* const labels = memory.get<const std::int32_t>(Of::labels);
    sum = cross_entropy(call.threads, positions, shape.width, outputs, labels, gradient, places);
  } else {
    const Regression batch{positions, shape.width, outputs, memory.get<const float>(Of::targets),
                           memory.get<const float>(Of::weights)};
    sum = is_sound_loss(shape.kind)
              ? sound_loss(shape.kind, call.threads, call.batch.rows, call.batch.steps, batch, gradient, memory.scratch)
              : regression_loss(shape.kind, call.threads, batch, gradient, places);
  }
  LossSums& result = memory.get<StepState>(Of::state)->loss;
  result = {};
  result.sum = sum.sum;
  result.weight = sum.weight;
  result.scored = sum.scored;
  result.correct = sum.correct;
  if (!all_finite(call.threads, positions * shape.width, outputs)) result.broken |= kBrokenOutput;
}

}  // namespace

StepState first_step_state(float loss_scale) {
  StepState state{};
  state.loss_scale = loss_scale;
  return state;
}

double step_rate(const StepRules& rules, double fraction) {
  return with_rule(static_cast<ScheduleKind>(rules.schedule), [&](auto schedule, const char*) {
    return decltype(schedule)::Rate(rules, std::clamp(fraction, 0.0, 1.0));
  });
}

Op begin_step(const StepRules& rules) {
  return {"begin_step",
          trained_by(rules, cuda_begin_step, [](const StepRules& of, const Call&, const Operands& memory) {
            with_rule(static_cast<ScheduleKind>(of.schedule), [&](auto schedule, const char*) {
              BeginStepOf<decltype(schedule)>(*memory.get<StepState>(BeginStepOperand::state), of,
                                              *memory.get<const double>(BeginStepOperand::time_fraction));
            });
          })};
}

Op loss(const LossShape& shape) {
  return {"loss", trained_by(shape, cuda_loss, run_loss, [](const LossShape& of, const Target& target) {
            return is_sound_loss(of.kind) ? sound_loss_scratch(target.rows, target.steps)
                                          : LossScratch::bytes(target.positions());
          })};
}

Op check_finite(Index width) {
  return {"check_finite", trained_by(width, cuda_check_finite, [](Index of, const Call& call, const Operands& memory) {
            if (all_finite(call.threads, call.batch.rows * of, memory.get<const float>(CheckFiniteOperand::values)))
              return;
            memory.get<StepState>(CheckFiniteOperand::state)->broken |= kBrokenOutput;
          })};
}

Op sum_squares(Index size, const SquareRanges& ranges) {
  const auto gpu = [ranges](Index of, const Target& target) { return cuda_sum_squares(of, ranges, target); };
  const auto cpu = [ranges](Index of, const Call& call, const Operands& memory) {
    const auto squares = [&](Index begin, Index end) {
      return sum_of_squares(call.threads, end - begin, memory.get<const float>(SumSquaresOperand::gradients) + begin,
                            static_cast<double*>(memory.scratch));
    };
    StepState& state = *memory.get<StepState>(SumSquaresOperand::state);
    state.first_squares = squares(ranges.first_begin, ranges.first_end);
    state.last_squares = squares(ranges.last_begin, ranges.last_end);
    state.gradient_squares = squares(0, ranges.first_begin) + state.first_squares +
                             squares(ranges.first_end, ranges.last_begin) + state.last_squares +
                             squares(ranges.last_end, of);
  };
  return {"sum_squares", trained_by(size, gpu, cpu, [](const Index& of, const Target&) {
            return static_cast<std::size_t>(square_parts(of)) * sizeof(double);
          })};
}

Op decide(const StepRules& rules) {
  return {"decide", trained_by(rules, cuda_decide, [](const StepRules& of, const Call&, const Operands& memory) {
            DecideStep(*memory.get<StepState>(DecideOperand::state), of);
          })};
}

Op keep_state(Index width) {
  return {"keep_state", trained_by(width, cuda_keep_state, [](Index of, const Call& call, const Operands& memory) {
            if (memory.get<const StepState>(KeepStateOperand::state)->keep == 0) return;
            std::copy_n(memory.get<const float>(KeepStateOperand::from), call.batch.rows * of,
                        memory.get<float>(KeepStateOperand::to));
          })};
}

void add_loss(LossSums& total, const LossSums& loss) { AddLoss(total, loss); }

}  // namespace ops
}  // namespace penstock
