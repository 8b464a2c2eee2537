// Sums of squares in double, up to kPart values of one range a block. Numbers that are not finite make them so, and
// nothing else does.
//
// Constants: kVector, kPart, kThreads.

#include "backend/cuda/kernels/pointwise/values.cuh"

#include "backend/cuda/kernels/pointwise/arguments.cuh"
#include "backend/cuda/kernels/pointwise/blocks.cuh"

extern "C" __global__ void __launch_bounds__(kThreads) SumSquares(const __grid_constant__ SquaresArguments args) {
  WaitForKernelBefore();
  const int part = blockIdx.x;
  int range = 0;
  while (part >= args.first_part[range + 1]) ++range;
  const Index begin = args.bounds[range] + (Index)(part - args.first_part[range]) * kPart;
  const Index end = min(begin + kPart, args.bounds[range + 1]);
  double sum = 0.0;
#pragma unroll 4
  for (int i = threadIdx.x * kVector; i < kPart; i += kThreads * kVector) {
    const Index at = begin + i;
    if (at + kVector <= end) {
      float v[kVector];
      Load<F32>(args.values, at, v);
      for (int k = 0; k < kVector; ++k) sum += (double)v[k] * (double)v[k];
    } else {
      for (Index k = at; k < end; ++k) sum += (double)args.values[k] * (double)args.values[k];
    }
  }
  sum = SumOfBlock(sum);
  if (threadIdx.x == 0) args.partial[part] = sum;
}
