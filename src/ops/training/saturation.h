#pragma once

#include "ops/op.h"

namespace penstock::ops {

/// y [B, T, width] -> i64 [2]: how many of the outputs have |y| > 0.99, and how many were looked at. The CPU looks at
/// all but padding, a GPU at one position of 32, padding included, whose zeros are never saturated.
Op saturation(Index width);

}  // namespace penstock::ops
