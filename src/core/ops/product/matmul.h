#pragma once

#include <cstdint>

#include "penstock/types.h"

namespace penstock::ops {

/// Sizes of a product of [M, K] and [K, N].
struct ProductSize {
  Index m, n, k;

  Index multiply_adds() const { return m * n * k; }
};

/// A matrix operand: row-major with `stride` elements from row to row; `transposed` means that the product uses its
/// transpose.
template <class Real>
struct Matrix {
  const Real* data;
  Index stride;
  bool transposed = false;
};

/// Result of a product, row-major with `stride` elements from row to row. `add`: the product is added to it.
template <class Real>
struct ProductResult {
  Real* data;
  Index stride;
  bool add = false;
};

/// Computes c [M, N] = op(a) [M, K] * op(b) [K, N], or adds it to c.
///
/// In exact mode every element is summed over k = 0, 1, ... in that order, so a row's result does not depend on the
/// other rows; otherwise oneDNN or, with AMX, a kernel of our own chooses (float) and only the same call on the same
/// number of threads repeats its bits.
template <class Real>
void matmul(const ProductSize& size, Matrix<Real> a, Matrix<Real> b, ProductResult<Real> c, const Execution& execution);

/// Computes the product of bfloat16 matrices. oneDNN sums the products in float in an order of its choice; c is float
/// or rounded to bfloat16 at the end. Needs AVX-512 BF16 or AMX.
template <class Result>
void bf16_matmul(const ProductSize& size, Matrix<std::uint16_t> a, Matrix<std::uint16_t> b, ProductResult<Result> c,
                 const Execution& execution);

extern template void matmul<float>(const ProductSize&, Matrix<float>, Matrix<float>, ProductResult<float>,
                                   const Execution&);
extern template void bf16_matmul<float>(const ProductSize&, Matrix<std::uint16_t>, Matrix<std::uint16_t>,
                                        ProductResult<float>, const Execution&);
extern template void bf16_matmul<std::uint16_t>(const ProductSize&, Matrix<std::uint16_t>, Matrix<std::uint16_t>,
                                                ProductResult<std::uint16_t>, const Execution&);
extern template void matmul<double>(const ProductSize&, Matrix<double>, Matrix<double>, ProductResult<double>,
                                    const Execution&);

}  // namespace penstock::ops
