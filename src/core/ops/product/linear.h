#pragma once

#include "ops/op.h"

namespace penstock::ops {

/// y = x W^T + b, position by position: weight [outputs, inputs], bias [outputs].
struct Linear {
  Index inputs = 1;
  Index outputs = 1;
  bool int8 = false;  ///< CPUs, forward passes: in place of weight are panels of pack_int8().
};

// clang-format off
/// Reads x [B, T, inputs], weight and bias; writes y [B, T, outputs].
struct LinearOperand { enum : int { x, weight, bias, y }; };
Op linear_forward(const Linear& shape);
/// Writes dweight, and dbias and dx [B, T, inputs] where they are wanted. The gradient of the bias is the sums of the
/// columns of dy, which the op that makes dy may have made with it.
struct LinearBackwardOperand { enum : int { x, weight, dy, dweight, dbias, dx }; };
Op linear_backward(const Linear& shape, bool wants_dbias, bool wants_dx);
// clang-format on

/// Panels of an int8 weight, which are all that a model keeps of it. Their size is that of the widest vectors; what is
/// inside depends on the instruction set in use when they were packed, and only that one reads them.
Index int8_panel_floats(const Linear& shape);
/// Packs weight [outputs, inputs] and the scale of each of its rows [outputs].
void pack_int8(const Linear& shape, const std::int8_t* weight, const float* scales, float* panels);
/// Restores the weight from panels, whichever instruction set they were packed for.
void unpack_int8(const Linear& shape, const float* panels, std::int8_t* weight);

}  // namespace penstock::ops
