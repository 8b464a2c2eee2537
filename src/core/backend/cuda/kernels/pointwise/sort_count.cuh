// How often each digit occurs in each chunk of positions.

#include "backend/cuda/kernels/pointwise/sort.cuh"

extern "C" __global__ void __launch_bounds__(kThreads) SortCount(const __grid_constant__ SortArguments args) {
  WaitForKernelBefore();
  __shared__ unsigned count[kBins];
  for (int bin = threadIdx.x; bin < kBins; bin += kThreads) count[bin] = 0;
  __syncthreads();
  const Index at = (Index)blockIdx.x * kThreads + threadIdx.x;
  if (at < args.positions) atomicAdd(&count[DigitOf(args, ItemAt(args, at).token)], 1u);
  __syncthreads();
  for (int bin = threadIdx.x; bin < kBins; bin += kThreads) {
    args.counts[(Index)bin * args.chunks + blockIdx.x] = count[bin];
  }
}
