// Adds up the sums of blocks, in their order. One block.
//
// Constants: kThreads.

#include "backend/cuda/kernels/pointwise/arguments.cuh"
#include "backend/cuda/kernels/pointwise/blocks.cuh"

extern "C" __global__ void __launch_bounds__(kThreads) FinishSquares(const __grid_constant__ SquaresArguments args) {
  double sum = 0.0;
#pragma unroll 4
  for (int part = threadIdx.x; part < args.parts; part += kThreads) sum += args.partial[part];
  sum = SumOfBlock(sum);
  if (threadIdx.x == 0) *args.result = sum;
}
