// The schedules of the learning rate, by how much of a run is over. One text for training on CPUs and for kernels. The
// including file defines PENSTOCK_STEP and StepCosPi(x), the cosine of pi x, and includes step_state.h before it.
// penstock/learning_rules.h lists them. Freestanding, without include guard.

/// Rises to the full rate over the warm-up, then falls as half a cosine to the final rate.
struct CosineRate {
  PENSTOCK_STEP double Rate(const StepRules& rules, double fraction) {
    if (fraction < rules.warmup) return rules.learning_rate * fraction / rules.warmup;
    const double place = rules.warmup < 1.0 ? (fraction - rules.warmup) / (1.0 - rules.warmup) : 0.0;
    const double cosine = 0.5 * (1.0 + StepCosPi(place));
    return rules.learning_rate * (rules.final_rate + (1.0 - rules.final_rate) * cosine);
  }
};

/// PyTorch's OneCycleLR with its usual factors: rises from 1/25 over the warm-up, then falls to 1/250,000. `fraction`
/// includes the next step, which PyTorch counts later.
struct OneCycleRate {
  PENSTOCK_STEP double Rate(const StepRules& rules, double fraction) {
    constexpr double kFirst = 1.0 / 25.0, kLast = 1.0 / 25e4;
    const double step = rules.max_steps > 0.0 ? 1.0 / rules.max_steps : 0.0;
    const double place = fraction - step, top = rules.warmup - step;
    if (place <= top && top > 0.0) return rules.learning_rate * Between(kFirst, 1.0, place / top);
    const double begin = fmax(top, 0.0), left = 1.0 - step - begin;
    return rules.learning_rate * Between(1.0, kLast, left > 0.0 ? (place - begin) / left : 1.0);
  }
  /// Half a cosine from one value to another, at 0 to 1 of the way.
  PENSTOCK_STEP double Between(double begin, double end, double place) {
    return end + (begin - end) * 0.5 * (1.0 + StepCosPi(fmin(place, 1.0)));
  }
};

/// Rises to the full rate over the warm-up and stays there. The trainer lowers the full rate after validations without
/// a lower loss, and goes on with CosineRate in the cooldown of early stopping.
struct PlateauRate {
  PENSTOCK_STEP double Rate(const StepRules& rules, double fraction) {
    return rules.learning_rate * (fraction < rules.warmup ? fraction / rules.warmup : 1.0);
  }
};
