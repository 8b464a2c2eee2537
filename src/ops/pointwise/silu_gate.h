#pragma once

#include "ops/op.h"

namespace penstock::ops {

/// The activation of a gated feed-forward: y = silu(gate) * value with silu(x) = x sigmoid(x) (Shazeer 2020).
struct SiluGate {
  Index inner = 1;  ///< F
};

/// gate_value [B, T, 2F], rows of gates then values -> y [B, T, F]
Op silu_gate_forward(const SiluGate& shape);
/// gate_value, dy -> dgate_value, which may be written over gate_value, and the sums of its columns [2F] in the type of
/// parameters, absent unless they are wanted: the gradient of a bias that was added to gate_value.
Op silu_gate_backward(const SiluGate& shape, bool wants_sums);

}  // namespace penstock::ops
