// Adds up partial sums [parts, size] part by part: each of kGroups groups of threads some of the parts, then one thread
// the groups.
//
// Constants: kAdd (to what the results hold), kGroups.

#include "backend/cuda/kernels/pointwise/arguments.cuh"

extern "C" __global__ void __launch_bounds__(32 * kGroups) SumParts(const __grid_constant__ SumPartsArguments args) {
  WaitForKernelBefore();
  __shared__ float sums[kGroups][32];
  const int lane = threadIdx.x % 32, group = threadIdx.x / 32;
  const Index at = (Index)blockIdx.x * 32 + lane;
  float sum = 0.0f;
  if (at < args.size) {
    const int end = (int)((Index)args.parts * (group + 1) / kGroups);
#pragma unroll 8
    for (int part = (int)((Index)args.parts * group / kGroups); part < end; ++part) {
      sum += args.partial[part * args.size + at];
    }
  }
  sums[group][lane] = sum;
  __syncthreads();
  if (group > 0 || at >= args.size) return;
  for (int other = 1; other < kGroups; ++other) sum += sums[other][lane];
  float* const to = at < args.first_size ? args.first + at : args.second + (at - args.first_size);
  *to = kAdd ? *to + sum : sum;
}
