// Rows by decreasing length, rows of equal length in their own order. Each thread finds the place of one row.
//
// Constants: kThreads.

#include "backend/cuda/kernels/dense/arguments.h"

extern "C" __global__ void __launch_bounds__(kThreads, 1) SortRows(const __grid_constant__ SortRowsArguments args) {
  const auto length = [&](int row) {
    return args.cu_seqlens != nullptr ? args.cu_seqlens[row + 1] - args.cu_seqlens[row] : args.lengths[row];
  };
  const int row = blockIdx.x * kThreads + threadIdx.x;
  if (row >= args.rows) return;
  const Index own = length(row);
  int place = 0;
  for (int other = 0; other < args.rows; ++other) {
    const Index of = length(other);
    place += of > own || (of == own && other < row) ? 1 : 0;
  }
  args.order[place] = row;
}
