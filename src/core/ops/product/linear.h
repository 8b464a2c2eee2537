#pragma once

#include "ops/op.h"

namespace penstock::ops {

/// y = x W^T + b, position by position: weight [outputs, inputs], bias [outputs].
struct Linear {
  Index inputs = 1;
  Index outputs = 1;
  bool int8 = false;  ///< CPUs, forward passes: in place of weight are panels of linear_panels().
};

// clang-format off
/// Reads x [B, T, inputs], weight and bias; writes y [B, T, outputs].
struct LinearOperand { enum : int { x, weight, bias, y }; };
Op linear_forward(const Linear& shape);
/// Reads weight as int8 and the scale of each of its rows [outputs]; writes panels, which have a size of their own.
struct LinearPanelsOperand { enum : int { weight, scale, panels }; };
Op linear_panels(const Linear& shape);
std::string linear_panels_key();
/// Writes dweight, and dbias and dx [B, T, inputs] where they are wanted. The gradient of the bias is the sums of the
/// columns of dy, which the op that makes dy may have made with it.
struct LinearBackwardOperand { enum : int { x, weight, dy, dweight, dbias, dx }; };
Op linear_backward(const Linear& shape, bool wants_dbias, bool wants_dx);
// clang-format on

}  // namespace penstock::ops
