#pragma once

#include "ops/op.h"

namespace penstock::ops {

/// y [B, T, width] -> f64 [2]: how many of the outputs have |y| > 0.99, and how many there are; padding is left out.
Op saturation(Index width);

}  // namespace penstock::ops
