#pragma once

#include <cmath>
#include <numbers>

#include "penstock/learning_rules.h"

/// The state and the rules of a training step for the host; kernels compile the same texts. The host reads and writes
/// the structs of a device by copies of the whole.
namespace penstock {

#include "base/training/step_state.h"

/// The cosine of pi x.
inline double StepCosPi(double x) { return std::cos(std::numbers::pi * x); }

#define PENSTOCK_STEP static inline
#include "base/training/losses.h"
#include "base/training/optimizers.h"
#include "base/training/schedules.h"
#undef PENSTOCK_STEP

#define PENSTOCK_KIND(kind, ...) kind,
/// Loss of a training step.
enum class LossKind { cross_entropy, PENSTOCK_REGRESSION_LOSSES(PENSTOCK_KIND) PENSTOCK_SOUND_LOSSES(PENSTOCK_KIND) };
/// Rule by which a step updates the parameters, or after them their average.
enum class OptimizerKind { PENSTOCK_OPTIMIZERS(PENSTOCK_KIND) average };
/// Course of the learning rate over a run.
enum class ScheduleKind { PENSTOCK_SCHEDULES(PENSTOCK_KIND) };
#undef PENSTOCK_KIND

/// The parts of a loss of sound (ops/training/sound_loss.h).
struct SoundLossParts {
  double emphasis = 0.0;                   ///< Coefficient of the pre-emphasis filter; 0: none.
  double esr = 0.0, dc = 0.0, stft = 0.0;  ///< Weight of each part.
};
/// Returns the parts of a loss of sound; of other losses, all are 0.
constexpr SoundLossParts sound_parts(LossKind kind) {
#define PENSTOCK_PARTS(name, ...) \
  if (kind == LossKind::name) return {__VA_ARGS__};
  PENSTOCK_SOUND_LOSSES(PENSTOCK_PARTS)
#undef PENSTOCK_PARTS
  return {};
}
/// Returns whether a loss judges a whole window of a sound, not each value by itself.
constexpr bool is_sound_loss(LossKind kind) { return sound_parts(kind).esr + sound_parts(kind).stft > 0.0; }

// Return visit(rule, name): the rule of a loss of regression, an optimiser or a schedule, and its name in the headers
// above.
#define PENSTOCK_VISIT(name, rule, ...) \
  if (kind == Kind::name) return visit(rule(), #rule);
constexpr auto with_rule(LossKind kind, const auto& visit) {
  using Kind = LossKind;
  PENSTOCK_REGRESSION_LOSSES(PENSTOCK_VISIT)
  __builtin_unreachable();
}
constexpr auto with_rule(OptimizerKind kind, const auto& visit) {
  using Kind = OptimizerKind;
  PENSTOCK_OPTIMIZERS(PENSTOCK_VISIT)
  PENSTOCK_VISIT(average, WeightAverage)
  __builtin_unreachable();
}
constexpr auto with_rule(ScheduleKind kind, const auto& visit) {
  using Kind = ScheduleKind;
  PENSTOCK_SCHEDULES(PENSTOCK_VISIT)
  __builtin_unreachable();
}
#undef PENSTOCK_VISIT

/// Returns the name of the rule of a kind.
constexpr const char* rule_name(auto kind) {
  return with_rule(kind, [](auto, const char* name) { return name; });
}

/// Returns the moments that a rule keeps of each parameter: 1 or 2.
constexpr int moments_of(OptimizerKind kind) {
  return with_rule(kind, [](auto rule, const char*) { return decltype(rule)::kMoments; });
}

/// Returns whether a rule corrects its moments in the first steps.
constexpr bool corrects_moments(OptimizerKind kind) {
  return with_rule(kind, [](auto rule, const char*) { return decltype(rule)::kCorrects; });
}

}  // namespace penstock
