// Rows of kWidth values from one storage to another; beyond the lengths they become zeros.
//
// Constants: From, To; those of rows.cuh.

#include "backend/cuda/kernels/pointwise/rows.cuh"

#include "backend/cuda/kernels/pointwise/arguments.cuh"

extern "C" __global__ void __launch_bounds__(kThreads) CopyRows(const __grid_constant__ CopyArguments args) {
  const Index row = (Index)blockIdx.x * kRowsOfBlock + threadIdx.x / kGroup;
  if (row >= args.rows || (args.condition != nullptr && *args.condition == 0)) return;
  const bool exists = args.lengths == nullptr || PlaceOf(row, args.steps, args.lengths).exists();
#pragma unroll(kSteps < 4 ? kSteps : 4)
  for (int step = 0; step < kSteps; ++step) {
    const int column = ColumnOf(step);
    if (!IsColumn(column)) continue;
    float v[kVector];
    for (int i = 0; i < kVector; ++i) v[i] = 0.0f;
    if (exists) Load<From>(args.from, row * args.from_stride + column, v);
    Store<To>(args.to, row * args.to_stride + column, v);
  }
}
