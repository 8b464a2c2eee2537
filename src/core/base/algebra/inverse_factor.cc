#include "base/algebra/inverse_factor.h"

#include <algorithm>
#include <array>

#include "base/algebra/cholesky.h"

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

struct Block {
  double* data;
  Index stride;
};

/// c [Rows, Columns] -= a [Rows, k] b [k, Columns], with all sums in registers.
template <Index Rows, Index Columns>
void subtract_tile(Block c, Block a, Block b, Index k) {
  std::array<std::array<double, Columns>, Rows> sums{};
  for (Index i = 0; i < k; ++i) {
    for (Index row = 0; row < Rows; ++row) {
      const double factor = a.data[row * a.stride + i];
      for (Index column = 0; column < Columns; ++column) sums[row][column] += factor * b.data[i * b.stride + column];
    }
  }
  for (Index row = 0; row < Rows; ++row) {
    for (Index column = 0; column < Columns; ++column) c.data[row * c.stride + column] -= sums[row][column];
  }
}

/// c [rows, columns] -= a [rows, k] b [k, columns]. Of a lower triangle b, what is above its diagonal is not read but
/// in a tile on it, where it is zero.
void subtract_product(Block c, Block a, Block b, Index rows, Index columns, Index k, bool triangle) {
  constexpr Index tile = 4;  // sums of 4 x 4 leave registers for factors in every instruction set
  for (Index column = 0; column < columns; column += tile) {
    const Index first = triangle ? std::min(column, k) : 0;
    const Block from{b.data + first * b.stride + column, b.stride};
    for (Index row = 0; row < rows; row += tile) {
      const Block to{c.data + row * c.stride + column, c.stride}, by{a.data + row * a.stride + first, a.stride};
      if (row + tile <= rows && column + tile <= columns) {
        subtract_tile<tile, tile>(to, by, from, k - first);
        continue;
      }
      for (Index i = 0; i < std::min(tile, rows - row); ++i) {
        for (Index j = 0; j < std::min(tile, columns - column); ++j) {
          subtract_tile<1, 1>({to.data + i * to.stride + j, to.stride}, {by.data + i * by.stride, by.stride},
                              {from.data + j, from.stride}, k - first);
        }
      }
    }
  }
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
bool factor(Reals& a, Index n) {
  Reals turned(static_cast<std::size_t>(n * block_rows));  // the rows of a block, as columns
  for (Index begin = 0; begin < n; begin += block_rows) {
    const Index end = std::min(n, begin + block_rows), width = end - begin;
    for (Index c = 0; c < width; ++c) {
      for (Index k = 0; k < begin; ++k) turned[k * width + c] = a[(begin + c) * n + k];
    }
    subtract_product({a.data() + begin * n + begin, n}, {a.data() + begin * n, n}, {turned.data(), width}, n - begin,
                     width, begin, false);
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

bool invert_factor(Reals& a, Index n) {
  if (!factor(a, n)) return false;
  // Rows I of the inverse X are L_II^-1 (E_I - L_I X), in which L_I are the columns before the block.
  Reals rows;
  for (Index begin = 0; begin < n; begin += block_rows) {
    const Index end = std::min(n, begin + block_rows), height = end - begin;
    const Reals triangle = diagonal_block(a, n, begin, end);
    rows.assign(static_cast<std::size_t>(height * end), 0.0);
    subtract_product({rows.data(), end}, {a.data() + begin * n, n}, {a.data(), n}, height, begin, begin, true);
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
