#pragma once

#include "network/kernels.h"

namespace penstock::network {

/// How floats become bytes: x / scale + zero, rounded.
struct ByteRange {
  float scale, zero;
};

/// Returns the scale and zero point that DynamicQuantizeLinear gives to x: `blocks` of n elements, `stride` apart.
ByteRange byte_range(const Kernels& kernels, Index n, const float* x, Index blocks = 1, Index stride = 0);
/// levels [n] = x / scale, rounded, such that they are `low` to `high` with the zero point, which they lack. NaN is 0.
void round_to_levels(const Kernels& kernels, const ByteRange& range, float low, float high, Index n, const float* x,
                     float* levels);

}  // namespace penstock::network
