#pragma once

#include "network/preparation.h"

namespace penstock::network {

/// How a window moves along one axis.
struct Window {
  Index size = 1, stride = 1, dilation = 1;
  Index before = 0, after = 0;  ///< Padding; negative where it takes away.
  Index in = 1, out = 1;
  Index up = 1;  ///< Elements of the input lie so far apart, with zeros between them.

  Index reach() const { return dilation * (size - 1) + 1; }
};

/// Windows along the last axes of read 0, at most two, the innermost last; with one, the first is trivial.
struct Windows {
  Window h, w;

  /// Returns whether they are parts of rows: along the first axis there is one place, and no padding.
  bool in_rows() const { return h.in == 1 && h.size == 1 && h.out == 1 && h.before == 0; }
};

/// Reads kernel_shape (or `kernel`, if it is not empty), strides, dilations, pads, auto_pad and ceil_mode.
Status read_windows(const Preparation& p, const Shape& kernel, Windows& windows);
/// Reads those of a transposed convolution, and returns the windows of the ordinary convolution that equals it.
Status read_transposed_windows(const Preparation& p, const Shape& kernel, Windows& windows);
/// Leaves out the places of windows that lie in the padding of every result, and adds those in front to `first`.
void trim(Window& window, Index& first);

}  // namespace penstock::network
