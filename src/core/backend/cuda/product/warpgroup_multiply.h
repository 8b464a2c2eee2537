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

/// The text of MultiplyShared(sum, a, b, add): as above, but with `add` 0 it sets the sums.
std::string warpgroup_multiply_shared(int columns, plan::Storage storage);

/// The same, and the text of MultiplyHeld(sum, a, b, add) of dense/warpgroup_forward.cuh, whose first factor is in
/// registers.
std::string warpgroup_multiply_recurrent(int columns, plan::Storage storage);

}  // namespace penstock::cuda
