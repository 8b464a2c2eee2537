#pragma once

#include "ops/op.h"

namespace penstock::ops {

/// A causal convolution over time of each channel by itself: y_t = bias + sum_j weight_j x_{t-j}, weight [taps, width].
struct CausalConvolution {
  Index width = 1;
  Index taps = 1;

  /// Values of a row's state: the last taps - 1 steps, oldest first.
  Index state_size() const { return (taps - 1) * width; }
};

/// x [B, T, width], state_in [B, taps - 1, width], weight, bias -> y [B, T, width], state_out, which may be state_in.
/// Zeros beyond a row's length.
Op causal_convolution_forward(const CausalConvolution& shape);
/// x, state_in, weight, dy -> dweight, dbias, dx
Op causal_convolution_backward(const CausalConvolution& shape);

}  // namespace penstock::ops
