#include "train/inverse_factor.h"

#include <algorithm>

#include "ops/matmul.h"
#include "train/cholesky.h"

namespace penstock::training {

namespace {

using Reals = std::vector<double>;

// Rows and columns that are worked on at a time: all else is products of matrices, and such a block stays in the cache.
constexpr Index block_rows = 64;

/// The lower triangle of rows and columns [begin, end) of a [n, n].
Reals diagonal_block(const Reals& a, Index n, Index begin, Index end) {
  const Index size = end - begin;
  Reals part(static_cast<std::size_t>(size * size), 0.0);
  for (Index i = 0; i < size; ++i) {
    std::copy_n(a.begin() + (begin + i) * n + begin, i + 1, part.begin() + i * size);
  }
  return part;
}

/// x [rows, columns] -> L^-1 x for a lower triangle L [rows, rows].
void solve_columns(const Reals& triangle, Index rows, double* x, Index stride, Index columns) {
  for (Index i = 0; i < rows; ++i) {
    double* const xi = x + i * stride;
    for (Index k = 0; k < i; ++k) {
      const double factor = triangle[i * rows + k];
      const double* const xk = x + k * stride;
      for (Index c = 0; c < columns; ++c) xi[c] -= factor * xk[c];
    }
    const double scale = 1.0 / triangle[i * rows + i];
    for (Index c = 0; c < columns; ++c) xi[c] *= scale;
  }
}

/// x [rows, columns] -> x L^-T for a lower triangle L [columns, columns].
void solve_rows(const Reals& triangle, Index columns, double* x, Index stride, Index rows) {
  for (Index i = 0; i < rows; ++i) {
    double* const row = x + i * stride;
    for (Index c = 0; c < columns; ++c) {
      double sum = row[c];
      for (Index k = 0; k < c; ++k) sum -= triangle[c * columns + k] * row[k];
      row[c] = sum / triangle[c * columns + c];
    }
  }
}

/// Replaces the lower triangle of A by L, block of columns after block of columns.
bool factor(Reals& a, Index n, const Execution& execution) {
  Reals product;
  for (Index begin = 0; begin < n; begin += block_rows) {
    const Index end = std::min(n, begin + block_rows), width = end - begin;
    if (begin > 0) {
      product.resize(static_cast<std::size_t>((n - begin) * width));
      ops::matmul<double>(n - begin, width, begin, {a.data() + begin * n, n}, {a.data() + begin * n, n, true}, 0.0,
                          product.data(), width, execution);
      for (Index i = begin; i < n; ++i) {
        for (Index c = 0; c < width; ++c) a[i * n + begin + c] -= product[(i - begin) * width + c];
      }
    }
    Reals triangle = diagonal_block(a, n, begin, end);
    if (!factor_symmetric(triangle, width)) return false;
    for (Index i = 0; i < width; ++i) {
      std::copy_n(triangle.begin() + i * width, i + 1, a.begin() + (begin + i) * n + begin);
    }
    solve_rows(triangle, width, a.data() + end * n + begin, n, n - end);
  }
  return true;
}

}  // namespace

bool invert_factor(Reals& a, Index n, const Execution& execution) {
  if (!factor(a, n, execution)) return false;
  // Rows I of the inverse X are L_II^-1 (E_I - L_I X), in which L_I are the columns before the block.
  Reals rows;
  for (Index begin = 0; begin < n; begin += block_rows) {
    const Index end = std::min(n, begin + block_rows), height = end - begin;
    const Reals triangle = diagonal_block(a, n, begin, end);
    rows.assign(static_cast<std::size_t>(height * end), 0.0);
    if (begin > 0) {
      ops::matmul<double>(height, begin, begin, {a.data() + begin * n, n}, {a.data(), n}, 0.0, rows.data(), end,
                          execution);
    }
    for (double& value : rows) value = -value;
    for (Index i = 0; i < height; ++i) rows[i * end + begin + i] = 1.0;
    solve_columns(triangle, height, rows.data(), end, end);
    for (Index i = 0; i < height; ++i) {
      std::copy_n(rows.begin() + i * end, end, a.begin() + (begin + i) * n);
      std::fill_n(a.begin() + (begin + i) * n + end, n - end, 0.0);
    }
  }
  return true;
}

}  // namespace penstock::training
