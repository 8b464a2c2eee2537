#pragma once

#include "ops/op.h"

namespace penstock::ops {

/// The activation of a gated feed-forward: y = silu(gate) * value with silu(x) = x sigmoid(x) (Shazeer 2020).
struct SiluGate {
  Index inner = 1;  ///< F
};

/// UnaryOperand: makes y [B, T, F] of x [B, T, 2F], whose rows are gates, then values.
Op silu_gate_forward(const SiluGate& shape);
/// Writes dx, maybe over x, and the sums of its columns [2F] in the type of parameters, absent unless they are wanted:
/// the gradient of a bias that was added to x.
struct SiluGateBackwardOperand {
  enum : int { x, dy, dx, column_sums };
};
Op silu_gate_backward(const SiluGate& shape, bool wants_sums);

}  // namespace penstock::ops
