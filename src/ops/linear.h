#pragma once

#include "ops/op.h"

namespace penstock::ops {

/// y = x W^T + b, position by position: weight [outputs, inputs], bias [outputs].
struct Linear {
  Index inputs = 1;
  Index outputs = 1;
};

/// x [B, T, inputs], weight, bias -> y [B, T, outputs]
Op linear_forward(const Linear& shape);
/// x, weight, dy -> dweight, dbias, dx [B, T, inputs], which may be absent
Op linear_backward(const Linear& shape, bool wants_dx);

}  // namespace penstock::ops
