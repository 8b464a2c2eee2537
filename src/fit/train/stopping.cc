#include "penstock/train/stopping.h"

#include <algorithm>
#include <cmath>

namespace penstock {

namespace {

// A cooldown begins at most at the rate that a cosine has here: the weights it starts from were found at a high one.
constexpr double least_cooldown_fraction = 0.5;
// Cooldown as a share of the steps that led to the best weights.
constexpr double cooldown_share = 0.2;

// Those of ReduceLROnPlateau(optimizer, factor=0.5, patience=3).
constexpr double plateau_factor = 0.5, plateau_threshold = 1e-4, least_change = 1e-8;
constexpr Index plateau_patience = 3;

}  // namespace

bool Plateau::note(double loss) {
  if (std::isfinite(loss) && (!best_loss || loss < *best_loss * (1.0 - plateau_threshold))) {
    best_loss = loss;
    without_gain = 0;
    return false;
  }
  if (++without_gain <= plateau_patience) return false;
  without_gain = 0;
  const double lower = factor * plateau_factor;
  if (factor - lower <= least_change) return false;
  factor = lower;
  return true;
}

bool Stopping::note(double loss, Index step, bool by_steps) {
  const bool better = std::isfinite(loss) && (!history_.known || loss < history_.best_loss);
  if (better) {
    history_.known = true;
    history_.best_loss = loss;
    history_.best_step = step;
    history_.without_gain = 0;
  } else if (by_steps) {
    ++history_.without_gain;
  }
  return better;
}

bool Stopping::exhausted() const {
  return patience_ > 0 && !cooling() && history_.known && history_.without_gain >= patience_;
}

void Stopping::begin_cooldown(Index step, double fraction) {
  history_.cooldown_begin = step;
  // Before the end of the warm-up the rate would rise.
  history_.cooldown_from = std::clamp(fraction, std::min(1.0, std::max(least_cooldown_fraction, warmup_)), 1.0);
}

Index Stopping::cooldown_steps() const {
  const auto share = static_cast<Index>(cooldown_share * static_cast<double>(history_.cooldown_begin));
  return std::max({Index{1}, share, validate_steps_});
}

double Stopping::fraction(Index step) const {
  if (!cooling()) return 0.0;
  const double passed = static_cast<double>(step - history_.cooldown_begin) / static_cast<double>(cooldown_steps());
  return std::min(1.0, history_.cooldown_from + (1.0 - history_.cooldown_from) * passed);
}

}  // namespace penstock
