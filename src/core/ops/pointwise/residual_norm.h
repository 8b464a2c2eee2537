#pragma once

#include "ops/op.h"
#include "ops/pointwise/dropout.h"

namespace penstock::ops {

/// The sum of a residual connection and the RMS norm of it (Zhang and Sennrich 2019), in one op, since both read the
/// same rows: sum = x + dropout(branch), normal = gain * sum / sqrt(mean(sum^2) + epsilon). Without a branch the sum is
/// x itself.
struct ResidualNorm {
  static constexpr double epsilon = 1e-6;

  Index width = 1;
  bool branch = false;
  Dropout dropout;  ///< Dropout of the branch, in training only

  bool drops(const Target& target) const {
    return branch && target.has(CallFlag::training) && dropout.probability > 0.0;
  }
};

// clang-format off
/// Writes normal [B, T, width], sum [B, T, width], absent without a branch, and inverse [B, T, 1]: 1 / sqrt(...), of
/// which only a backward pass needs to know. The sum may be written over x or the branch.
struct NormOperand { enum : int { x, branch, gain, normal, sum, inverse }; };
Op residual_norm_forward(const ResidualNorm& shape);

/// Writes the gradients from dgain on. An absent dsum is 0. dbranch is absent without dropout: it is dx then.
/// column_sums [width] are those of the branch's gradient, absent unless they are wanted: the gradient of a bias that
/// ends the branch. dx may be written over dsum.
struct NormBackwardOperand { enum : int { sum, inverse, gain, dnormal, dsum, dgain, dx, dbranch, column_sums }; };
Op residual_norm_backward(const ResidualNorm& shape, bool wants_sums);
// clang-format on

}  // namespace penstock::ops
