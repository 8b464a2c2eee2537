#pragma once

#include <cmath>
#include <numeric>
#include <vector>

#include "penstock/types.h"

namespace penstock::training {

/// Replaces the lower triangle of symmetric A [n, n] by L with A = L L^T; false if A is not positive, and is spoilt.
inline bool factor_symmetric(std::vector<double>& a, Index n) {
  for (Index j = 0; j < n; ++j) {
    for (Index i = j; i < n; ++i) {
      const double* const ri = a.data() + i * n;
      const double* const rj = a.data() + j * n;
      const double sum = a[i * n + j] - std::inner_product(ri, ri + j, rj, 0.0);
      if (i == j && !(sum > 0.0)) return false;
      a[i * n + j] = i == j ? std::sqrt(sum) : sum / a[j * n + j];
    }
  }
  return true;
}

/// Solves L L^T x = b with several right sides b [n, m], in place.
inline void solve_factored(const std::vector<double>& l, Index n, std::vector<double>& b, Index m = 1) {
  for (Index i = 0; i < n; ++i) {
    for (Index k = 0; k < i; ++k) {
      for (Index c = 0; c < m; ++c) b[i * m + c] -= l[i * n + k] * b[k * m + c];
    }
    for (Index c = 0; c < m; ++c) b[i * m + c] /= l[i * n + i];
  }
  for (Index i = n - 1; i >= 0; --i) {
    for (Index k = i + 1; k < n; ++k) {
      for (Index c = 0; c < m; ++c) b[i * m + c] -= l[k * n + i] * b[k * m + c];
    }
    for (Index c = 0; c < m; ++c) b[i * m + c] /= l[i * n + i];
  }
}

}  // namespace penstock::training
