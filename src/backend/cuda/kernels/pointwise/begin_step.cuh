// Clears what a batch leaves in the state of the run, and says what the step is to be: its seed and its learning rate.

#include "backend/cuda/kernels/pointwise/arguments.cuh"
#include "base/counter_random.h"

PENSTOCK_DEVICE double Fraction(const TrainingStepArguments& args) {
  const StepRules& rules = args.rules;
  double fraction = args.time_fraction == nullptr ? 0.0 : *args.time_fraction;
  if (rules.max_steps > 0.0) fraction = fmax(fraction, (double)(args.state->step + 1) / rules.max_steps);
  if (rules.max_scored > 0.0) fraction = fmax(fraction, (double)args.state->scored / rules.max_scored);
  return fmin(fmax(fraction, 0.0), 1.0);
}

/// Rises to the full rate over the warm-up, then falls as half a cosine to the final rate.
PENSTOCK_DEVICE double Rate(const StepRules& rules, double fraction) {
  if (fraction < rules.warmup) return rules.learning_rate * fraction / rules.warmup;
  const double place = rules.warmup < 1.0 ? (fraction - rules.warmup) / (1.0 - rules.warmup) : 0.0;
  const double cosine = 0.5 * (1.0 + cospi(place));
  return rules.learning_rate * (rules.final_rate + (1.0 - rules.final_rate) * cosine);
}

extern "C" __global__ void BeginStep(const __grid_constant__ TrainingStepArguments args) {
  StepState& state = *args.state;
  state.loss = LossSums{};
  state.gradient_squares = 0.0;
  state.broken = 0;
  state.apply = state.keep = 0;
  state.learning_rate = Rate(args.rules, Fraction(args));
  state.dropout_seed = penstock::counter_random::seed_of_step(args.rules.seed, (unsigned long long)state.step);
}
