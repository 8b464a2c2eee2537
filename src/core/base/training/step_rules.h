// Decisions of a training step: its learning rate, whether it is taken, and its factors. One text for training on CPUs
// and for kernels. The including file defines PENSTOCK_STEP and includes step_state.h and schedules.h before it.
// Freestanding, without include guard, like these files.

/// How much of the run is behind the step: the limit that is nearest decides.
PENSTOCK_STEP double StepFraction(const StepState& state, const StepRules& rules, double time_fraction) {
  double fraction = time_fraction;
  if (rules.max_steps > 0.0) fraction = fmax(fraction, (double)(state.step + 1) / rules.max_steps);
  if (rules.max_scored > 0.0) fraction = fmax(fraction, (double)state.scored / rules.max_scored);
  return fmin(fmax(fraction, 0.0), 1.0);
}

/// Clears what a batch leaves in the state of the run, and says what the step is to be: its seed and its learning rate.
template <class Schedule>
PENSTOCK_STEP void BeginStepOf(StepState& state, const StepRules& rules, double time_fraction) {
  state.loss = LossSums{};
  state.gradient_squares = state.first_squares = state.last_squares = 0.0;
  state.broken = 0;
  state.apply = state.keep = 0;
  state.learning_rate = Schedule::Rate(rules, StepFraction(state, rules, time_fraction));
  state.dropout_seed = penstock::counter_random::seed_of_step(rules.seed, (unsigned long long)state.step);
}

/// Returns the values that were not finite, as a set of StepBroken.
PENSTOCK_STEP unsigned StepBrokenBy(const StepState& state) {
  unsigned broken = state.broken | state.loss.broken;
  const double mean = state.loss.weight > 0.0 ? state.loss.sum / state.loss.weight : 0.0;
  if (!(fabs(mean) <= 1.7976931348623157e308)) broken |= kBrokenLoss;
  // Squares beyond float would make the second moment infinite, and with it the weight immovable for good.
  const double scale = (double)state.loss_scale;
  const double squares = state.gradient_squares / (scale * scale);
  if (state.loss.scored > 0 && !(squares <= 3.4028234663852886e38)) broken |= kBrokenGradient;
  return broken;
}

PENSTOCK_STEP void ApplyStep(StepState& state, const StepRules& rules) {
  const double scale = (double)state.loss_scale;
  state.gradient_norm = sqrt(state.gradient_squares) / scale;
  state.clipped_norm = rules.clip > 0.0 ? fmin(state.gradient_norm, rules.clip) : state.gradient_norm;
  const double clipping = state.gradient_norm > 0.0 ? state.clipped_norm / state.gradient_norm : 1.0;
  state.gradient_factor = (float)(clipping / scale);
  const double updates = (double)++state.updates;
  state.rate = (float)(state.learning_rate / (1.0 - pow(rules.beta1, updates)));
  state.root_correction = (float)(1.0 / sqrt(1.0 - pow(rules.beta2, updates)));
  state.decay_factor = (float)(1.0 - state.learning_rate * rules.weight_decay);
  // As TensorFlow's ExponentialMovingAverage with num_updates: a short run soon forgets the weights that it began with.
  state.average_rest = (float)(1.0 - fmin(rules.average, (1.0 + updates) / (10.0 + updates)));
  state.apply = 1;
}

/// Adapts the loss scale. Returns whether a gradient overflowed because of the loss scale.
PENSTOCK_STEP bool RescaleStep(StepState& state, const StepRules& rules, unsigned broken) {
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

PENSTOCK_STEP void AddLoss(LossSums& total, const LossSums& loss) {
  total.sum += loss.sum;
  total.weight += loss.weight;
  total.scored += loss.scored;
  total.correct += loss.correct;
}

/// Decides whether a step is taken, and with which factors: the whole input of the optimiser. The host reads it later.
PENSTOCK_STEP void DecideStep(StepState& state, const StepRules& rules) {
  const unsigned broken = StepBrokenBy(state);
  state.broken = broken;
  state.apply = 0;
  state.keep = broken == 0;
  ++state.step;
  state.scored += state.loss.scored;
  if (broken == 0) {
    if (state.loss.scored > 0) ApplyStep(state, rules);
    AddLoss(state.total, state.loss);
    state.skipped_in_a_row = 0;
  }
  if (RescaleStep(state, rules, broken)) {
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
