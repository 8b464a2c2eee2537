// How many of some rows' values are beyond a bound. Integers are counted, so that the order does not matter.
//
// Constants: Storage, kThreads.

#include "backend/cuda/kernels/pointwise/values.cuh"

#include "backend/cuda/kernels/pointwise/arguments.cuh"

extern "C" __global__ void __launch_bounds__(kThreads) Saturation(const __grid_constant__ SaturationArguments args) {
  int found = 0;
  const Index total = args.rows * args.width, stride = (Index)gridDim.x * kThreads;
  for (Index i = (Index)blockIdx.x * kThreads + threadIdx.x; i < total; i += stride) {
    float value[1];
    Load<Storage>(args.values, i / args.width * args.row_stride + i % args.width, value);
    found += fabsf(value[0]) > 0.99f ? 1 : 0;
  }
  found = __reduce_add_sync(0xffffffffu, found);
  if (threadIdx.x % 32 == 0 && found > 0) atomicAdd(args.counts, (unsigned long long)found);
  if (blockIdx.x == 0 && threadIdx.x == 0) atomicAdd(args.counts + 1, (unsigned long long)total);
}
