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

}  // namespace penstock::training
