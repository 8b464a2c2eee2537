#pragma once

#include "penstock/types.h"

/// The factor of the loss in training in f16 (Micikevicius et al. 2018). RescaleStep() in base/training applies it.
namespace penstock::training {

/// Halves hold gradients that are 2^16 times as large as the loss makes them in float, and lose the smallest no more.
inline constexpr double first_loss_scale = 65536.0, least_loss_scale = 1.0, greatest_loss_scale = 16777216.0;

/// Where a gradient overflows, the scale falls; after so many good steps it grows.
inline constexpr double loss_scale_backoff = 0.5, loss_scale_growth = 2.0;
inline constexpr Index loss_scale_growth_steps = 2000;

}  // namespace penstock::training
