#pragma once

#include "ops/op.h"

namespace penstock::ops {

/// How many values are cast: `width` for each position, or in all.
struct CastShape {
  Index width = 1;
  bool per_position = false;
  SequenceStrides from_strides = {}, to_strides = {};  ///< CPUs: how the sequences lie, per position.
};

/// UnaryOperand: rounds each value to the nearest of another type, ties to even. A CPU, which computes in one type,
/// casts what is stored in bfloat16 to f32 and back.
Op cast(const CastShape& shape, DType from, DType to);

}  // namespace penstock::ops
