#pragma once

#include <algorithm>

#include "penstock/types.h"

namespace penstock::network {

/// Whether this is the C runtime, which has to be small, and whose streams are single rows.
#if PENSTOCK_RUNTIME
constexpr bool kIsRuntime = true;
#else
constexpr bool kIsRuntime = false;
#endif

/// y [columns, rows] = x [rows, columns], whose rows lie `stride` apart. Compilers turn the loops over four of constant
/// distance into vectors.
inline void transpose(Index rows, Index columns, const float* __restrict x, Index stride, float* __restrict y) {
  if (rows == 1 || (columns == 1 && stride == 1)) {
    std::copy_n(x, rows * columns, y);
  } else if (!kIsRuntime && columns == 4 && stride == 4) {
    for (Index row = 0; row < rows; ++row) {
      for (Index column = 0; column < 4; ++column) y[column * rows + row] = x[row * 4 + column];
    }
  } else if (!kIsRuntime && rows == 4) {
    for (Index column = 0; column < columns; ++column) {
      for (Index row = 0; row < 4; ++row) y[column * 4 + row] = x[row * stride + column];
    }
  } else if (rows < columns) {
    for (Index row = 0; row < rows; ++row) {
      for (Index column = 0; column < columns; ++column) y[column * rows + row] = x[row * stride + column];
    }
  } else {
    for (Index column = 0; column < columns; ++column) {
      for (Index row = 0; row < rows; ++row) y[column * rows + row] = x[row * stride + column];
    }
  }
}

}  // namespace penstock::network
