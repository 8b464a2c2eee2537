#pragma once

#include <string>

#include "plan/gpu/scan.h"

namespace penstock::cuda {

/// The text of Multiply() and MultiplyFirst() of kernels/product/warpgroup.cuh, which add to, or set, 64 rows of
/// `columns` sums: one instruction that names each of a thread's registers. `columns`: a multiple of 8, at most 256.
std::string warpgroup_multiply(int columns);

/// The text of Multiply() of two matrices in shared memory, of bf16 or f16, both with sixteen factors of each sum side
/// by side, which adds to 64 rows of `columns` sums.
std::string warpgroup_multiply_halves(int columns, plan::Storage storage);

/// The text of MultiplyShared(sum, a, b, add) and MultiplyHeld(sum, a, b, add) of dense/warpgroup_forward.cuh: as
/// above, the first factor in shared memory or in registers, which add to the sums or, with `add` 0, set them.
std::string warpgroup_multiply_recurrent(int columns, plan::Storage storage);

}  // namespace penstock::cuda
