#pragma once

#include "ops/op.h"

namespace penstock::ops {

/// How many values are cast: `width` for each position, or in all.
struct CastShape {
  Index width = 1;
  bool per_position = false;
};

/// x -> y, each value rounded to the nearest of another type, ties to even. GPUs only: the CPU computes in one type.
Op cast(const CastShape& shape, DType from, DType to);

}  // namespace penstock::ops
