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

// clang-format off
/// Reads x [B, T, width] and state_in [B, taps - 1, width], zeros without one. Writes y [B, T, width], zero beyond a
/// row's length, and state_out, which may be state_in; it needs a state_in.
struct ConvolutionOperand { enum : int { x, state_in, weight, bias, y, state_out }; };
Op causal_convolution_forward(const CausalConvolution& shape);
/// Writes the gradients from dweight on.
struct ConvolutionBackwardOperand { enum : int { x, state_in, weight, dy, dweight, dbias, dx }; };
Op causal_convolution_backward(const CausalConvolution& shape);
// clang-format on

}  // namespace penstock::ops
