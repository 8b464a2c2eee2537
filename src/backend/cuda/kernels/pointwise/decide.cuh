// Whether a step is taken, and with which factors: all that the optimiser has to know. The host learns of it later.

#include "backend/cuda/kernels/pointwise/values.cuh"

#include "backend/cuda/kernels/pointwise/arguments.cuh"

/// What was not finite.
PENSTOCK_DEVICE unsigned Broken(const StepState& state) {
  unsigned broken = state.broken | state.loss.broken;
  const double mean = state.loss.weight > 0.0 ? state.loss.sum / state.loss.weight : 0.0;
  if (!Finite(mean)) broken |= kBrokenLoss;
  // Squares beyond float would make the second moment infinite, and with it the weight immovable for good.
  const double scale = (double)state.loss_scale;
  const double squares = state.gradient_squares / (scale * scale);
  if (state.loss.scored > 0 && !(squares <= 3.4028234663852886e38)) broken |= kBrokenGradient;
  return broken;
}

PENSTOCK_DEVICE void Apply(StepState& state, const StepRules& rules) {
  const double scale = (double)state.loss_scale;
  state.gradient_norm = sqrt(state.gradient_squares) / scale;
  state.clipped_norm = rules.clip > 0.0 ? fmin(state.gradient_norm, rules.clip) : state.gradient_norm;
  const double clipping = state.gradient_norm > 0.0 ? state.clipped_norm / state.gradient_norm : 1.0;
  state.gradient_factor = (float)(clipping / scale);
  const double updates = (double)++state.updates;
  state.rate = (float)(state.learning_rate / (1.0 - pow(rules.beta1, updates)));
  state.root_correction = (float)(1.0 / sqrt(1.0 - pow(rules.beta2, updates)));
  state.decay_factor = (float)(1.0 - state.learning_rate * rules.weight_decay);
  state.apply = 1;
}

/// Whether a gradient that overflowed is the loss scale's doing.
PENSTOCK_DEVICE bool Rescale(StepState& state, const StepRules& rules, unsigned broken) {
  if (rules.growth_steps == 0) return false;
  const double scale = (double)state.loss_scale;
  if (broken == kBrokenGradient && scale > rules.least_scale) {
    state.loss_scale = (float)fmax(rules.least_scale, scale * rules.backoff);
    state.good_steps = 0;
    return true;
  }
  if (broken == 0 && ++state.good_steps >= rules.growth_steps) {
    state.loss_scale = (float)fmin(rules.greatest_scale, scale * rules.growth);
    state.good_steps = 0;
  }
  return false;
}

PENSTOCK_DEVICE void Add(LossSums& total, const LossSums& loss) {
  total.sum += loss.sum;
  total.weight += loss.weight;
  total.scored += loss.scored;
  total.correct += loss.correct;
}

extern "C" __global__ void Decide(const __grid_constant__ TrainingStepArguments args) {
  StepState& state = *args.state;
  const unsigned broken = Broken(state);
  state.broken = broken;
  state.apply = 0;
  state.keep = broken == 0;
  ++state.step;
  state.scored += state.loss.scored;
  if (broken == 0) {
    if (state.loss.scored > 0) Apply(state, args.rules);
    Add(state.total, state.loss);
    state.skipped_in_a_row = 0;
  }
  if (Rescale(state, args.rules, broken)) {
    // The forward pass was sound, and so is the state that it leaves.
    state.keep = 1;
    ++state.rescaled;
  } else if (broken != 0) {
    ++state.skipped;
    ++state.skipped_in_a_row;
    state.last_skipped = state.step;
    state.last_broken = broken;
  }
}
