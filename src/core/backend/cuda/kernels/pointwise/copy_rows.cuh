// Rows of kWidth values from one storage to another; beyond the lengths, and after the first kCopied, they are zeros.
//
// Constants: From, To, kBatches (rows of a batch have a distance of their own), kCopied, kNumbered (0: rows correspond;
// 1: `numbers` says which rows are read, 2: which are written); those of rows.cuh.

#include "backend/cuda/kernels/pointwise/rows.cuh"

#include "backend/cuda/kernels/pointwise/arguments.cuh"

extern "C" __global__ void __launch_bounds__(kThreads) CopyRows(const __grid_constant__ CopyArguments args) {
  WaitForKernelBefore();
  const Index row = (Index)blockIdx.x * kRowsOfBlock + threadIdx.x / kGroup;
  if (row >= args.rows || (args.condition != nullptr && *args.condition == 0)) return;
  Index from = row * args.from_stride, to = row * args.to_stride;
  if constexpr (kBatches) {
    const Index batch = row / args.steps, step = row % args.steps;
    from = batch * args.from_batch + step * args.from_stride;
    to = batch * args.to_batch + step * args.to_stride;
  }
  if constexpr (kNumbered != 0) {
    const int number = args.numbers[row];
    if (number < 0) return;
    (kNumbered == 1 ? from : to) = number * (kNumbered == 1 ? args.from_stride : args.to_stride);
  }
  const bool exists = args.lengths == nullptr || PlaceOf(row, args.steps, args.lengths).exists();
#pragma unroll(kSteps < 4 ? kSteps : 4)
  for (int step = 0; step < kSteps; ++step) {
    const int column = ColumnOf(step);
    if (!IsColumn(column)) continue;
    float v[kVector];
    for (int i = 0; i < kVector; ++i) v[i] = 0.0f;
    if (exists && (kCopied == kWidth || column < kCopied)) Load<From>(args.from, from + column, v);
    Store<To>(args.to, to + column, v);
  }
}
