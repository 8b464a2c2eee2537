#pragma once

#include "ops/op.h"

namespace penstock::ops {

/// UnaryOperand: counts in y, i64 [2], how many of x [B, T, width] have |x| > 0.99, and how many were looked at. The
/// CPU looks at all but padding, a GPU at one position of 32, padding included, whose zeros are never saturated.
Op saturation(Index width);

}  // namespace penstock::ops
