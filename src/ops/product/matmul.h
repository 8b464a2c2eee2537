#pragma once

#include <cstdint>

#include "penstock/types.h"

namespace penstock::ops {

/// A matrix operand: row-major with `stride` elements from row to row; `transposed` means that the product uses its
/// transpose.
template <class Real>
struct Matrix {
  const Real* data;
  Index stride;
  bool transposed = false;
};

/// c [M, N] (row stride `c_stride`) = op(a) [M, K] * op(b) [K, N] + beta * c, with beta 0 or 1.
///
/// In exact mode every element is summed over k = 0, 1, ... in that order, so a row's result does not depend on the
/// other rows; otherwise oneDNN or, with AMX, a kernel of our own chooses (float) and only the same call on the same
/// number of threads repeats its bits.
template <class Real>
void matmul(Index m, Index n, Index k, Matrix<Real> a, Matrix<Real> b, Real beta, Real* c, Index c_stride,
            const Execution& execution);

/// Multiplies matrices of bfloat16 [..]; oneDNN sums the products in float in an order of its choice. c is float, or
/// rounded to bfloat16 at the end. Needs AVX-512 BF16 or AMX.
template <class Result>
void matmul(Index m, Index n, Index k, Matrix<std::uint16_t> a, Matrix<std::uint16_t> b, float beta, Result* c,
            Index c_stride, const Execution& execution);

extern template void matmul<float>(Index, Index, Index, Matrix<float>, Matrix<float>, float, float*, Index,
                                   const Execution&);
extern template void matmul<float>(Index, Index, Index, Matrix<std::uint16_t>, Matrix<std::uint16_t>, float, float*,
                                   Index, const Execution&);
extern template void matmul<std::uint16_t>(Index, Index, Index, Matrix<std::uint16_t>, Matrix<std::uint16_t>, float,
                                           std::uint16_t*, Index, const Execution&);
extern template void matmul<double>(Index, Index, Index, Matrix<double>, Matrix<double>, double, double*, Index,
                                    const Execution&);

}  // namespace penstock::ops
