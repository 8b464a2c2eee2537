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
/// x, weight, dy -> dweight, dbias, dx [B, T, inputs]; of the last two what is not wanted is absent. The gradient of
/// the bias is the sums of the columns of dy, which the op that makes dy may have made with it.
Op linear_backward(const Linear& shape, bool wants_dbias, bool wants_dx);

}  // namespace penstock::ops
