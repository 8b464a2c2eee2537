// Adds up the sums of blocks, in their order: of all of them, and of the second and the fourth range. One block.
//
// Constants: kThreads.

#include "backend/cuda/kernels/pointwise/arguments.cuh"
#include "backend/cuda/kernels/pointwise/blocks.cuh"

PENSTOCK_DEVICE double SumOfParts(const double* partial, int begin, int end) {
  double sum = 0.0;
#pragma unroll 4
  for (int part = begin + threadIdx.x; part < end; part += kThreads) sum += partial[part];
  return SumOfBlock(sum);
}

extern "C" __global__ void __launch_bounds__(kThreads) FinishSquares(const __grid_constant__ SquaresArguments args) {
  WaitForKernelBefore();
  const double all = SumOfParts(args.partial, 0, args.first_part[5]);
  const double first = SumOfParts(args.partial, args.first_part[1], args.first_part[2]);
  const double last = SumOfParts(args.partial, args.first_part[3], args.first_part[4]);
  if (threadIdx.x == 0) args.result[0] = all, args.result[1] = first, args.result[2] = last;
}
