#pragma once

#include <string>

namespace penstock::cuda {

/// The text of Multiply() and MultiplyFirst() of kernels/product/warpgroup.cuh, which add to, or set, 64 rows of
/// `columns` sums: one instruction that names each of a thread's registers. `columns`: a multiple of 8, at most 256.
std::string warpgroup_multiply(int columns);

}  // namespace penstock::cuda
