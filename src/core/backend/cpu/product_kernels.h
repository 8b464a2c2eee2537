#pragma once

#include <cstddef>

#include "penstock/types.h"

namespace penstock::cpu {

/// One matrix whose products with another are summed over rows: c [M, columns] += a^T b.
template <class Real>
struct TransposedFactor {
  const Real* const* row = nullptr;  // [rows]
  Index offset = 0, columns = 0;     // row k of b is row[k] + offset, [columns]
  Real* c = nullptr;                 // row m belongs to column first + m of a
  Index c_stride = 0, first = 0;
};

/// a^T b for up to two b, and the sums of a's columns.
template <class Real>
struct TransposedProduct {
  Index rows = 0;           // K
  const Real* a = nullptr;  // [rows, a_stride]
  Index a_stride = 0;
  TransposedFactor<Real> factors[2];   // those without columns are left out
  Real* sums[2] = {nullptr, nullptr};  // [M] each, added to, or null
};

/// Rows that are summed at a time: so many, or a few less, are a good number to come at once.
constexpr Index kTransposedRows = 512;

/// c = a b, b packed. K comes in blocks, each of which lies apart in a.
template <class Real>
struct PanelProduct {
  const Real* a = nullptr;  // [blocks, rows, inner], blocks `block_stride` and rows `a_stride` apart
  Index a_stride = 0;
  Index blocks = 1, block_stride = 0;
  Index inner = 0, columns = 0;  // K / blocks, N
  const Real* panels = nullptr;  // of pack_product_panels()
  Real* const* c_row = nullptr;  // [rows], each [N]
};

/// c [M, N] = a [M, K] b [K, N], each of a and b with rows or columns whose elements lie side by side.
template <class Real>
struct MatrixProduct {
  Index k = 0;
  const Real* a = nullptr;
  Index a_row = 0, a_column = 0;  // strides, one of which is 1
  const Real* b = nullptr;
  Index b_row = 0, b_column = 0;
  Real* c = nullptr;
  Index c_stride = 0;
  bool adds = false;  // to c
};

/// Matrix products in a fixed order of summation (over k, or over k in interleaved lanes), the same for every row
/// whatever the other rows are. Strides in elements; `a_row` and `a_col` allow either layout of a.
template <class Real>
struct ProductKernels {
  /// c [M, N] = a [M, K] * b^T, b [N, K] row-major; + beta * c with beta 0 or 1. Rows [begin, end) of c.
  void (*rows_times_rows)(Index begin, Index end, Index n, Index k, const Real* a, Index a_stride, const Real* b,
                          Index b_stride, Real beta, Real* c, Index c_stride) = nullptr;
  /// c [M, N] = op(a) * b, b [K, N] row-major, op(a)[m][k] at a[m * a_row + k * a_col].
  void (*rows_times_columns)(Index begin, Index end, Index n, Index k, const Real* a, Index a_row, Index a_col,
                             const Real* b, Index b_stride, Real beta, Real* c, Index c_stride) = nullptr;
  /// Adds to what columns [begin, end) of a belong to; scratch of as many Reals as the other says for factors of so
  /// many columns each.
  void (*add_transposed)(const TransposedProduct<Real>& job, Index begin, Index end, Real* scratch) = nullptr;
  Index (*transposed_scratch)(Index first_columns, Index second_columns) = nullptr;
  /// Panels of b [K, N] for rows_times_panels(), and their number of Reals; rows [begin, end) of the product.
  std::size_t (*product_panels)(Index k, Index n) = nullptr;
  void (*pack_product_panels)(Index k, Index n, const Real* b, Index b_stride, Real* packed) = nullptr;
  void (*rows_times_panels)(const PanelProduct<Real>& job, Index begin, Index end) = nullptr;
  /// A block of c, for products of hundreds of rows and columns; null where the set has nothing that is quicker than
  /// oneDNN.
  void (*multiply)(const MatrixProduct<Real>& job, Index row_begin, Index row_end, Index column_begin,
                   Index column_end) = nullptr;
};

// Each fills in its own members for the instruction set in use; defined by the file of that engine.
void FillProducts(ProductKernels<float>& kernels);
void FillProducts(ProductKernels<double>& kernels);
/// Instead of those that AMX makes quicker.
void FillSplitProducts(ProductKernels<float>& kernels);

/// Returns the kernels of the instruction set in use.
template <class Real>
ProductKernels<Real> product_kernels();

}  // namespace penstock::cpu
