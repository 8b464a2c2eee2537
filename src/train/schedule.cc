#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace penstock::training {

double scheduled_rate(const TrainOptions& options, double fraction) {
  fraction = std::clamp(fraction, 0.0, 1.0);
  if (fraction < options.warmup) return options.learning_rate * fraction / options.warmup;
  const double place = options.warmup < 1.0 ? (fraction - options.warmup) / (1.0 - options.warmup) : 0.0;
  const double cosine = 0.5 * (1.0 + std::cos(std::numbers::pi * place));
  return options.learning_rate * (options.final_rate + (1.0 - options.final_rate) * cosine);
}

}  // namespace penstock::training
