// How many of some rows' values are beyond a bound. Integers are counted, so that the order does not matter.
//
// Constants: Storage, kThreads.

#include "backend/cuda/kernels/pointwise/values.cuh"

#include "backend/cuda/kernels/pointwise/arguments.cuh"

extern "C" __global__ void __launch_bounds__(kThreads) Saturation(const __grid_constant__ SaturationArguments args) {
  WaitForKernelBefore();
  int found = 0;
  for (Index row = blockIdx.x; row < args.rows; row += gridDim.x) {
#pragma unroll 4
    for (Index column = threadIdx.x; column < args.width; column += kThreads) {
      found += fabsf(LoadOne<Storage>(args.values, row * args.row_stride + column)) > 0.99f ? 1 : 0;
    }
  }
  found = __reduce_add_sync(0xffffffffu, found);
  if (threadIdx.x % 32 == 0 && found > 0) atomicAdd(args.counts, (unsigned long long)found);
  if (blockIdx.x == 0 && threadIdx.x == 0) atomicAdd(args.counts + 1, (unsigned long long)(args.rows * args.width));
}
