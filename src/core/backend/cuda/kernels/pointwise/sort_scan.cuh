// Counts become the places at which each chunk's positions of each digit begin: one block.

#include "backend/cuda/kernels/pointwise/sort.cuh"

extern "C" __global__ void __launch_bounds__(kThreads) SortScan(const __grid_constant__ SortArguments args) {
  WaitForKernelBefore();
  __shared__ unsigned of_warp[kThreads / 32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const Index all = (Index)kBins * args.chunks;
  unsigned before = 0;  // all that earlier rounds counted
  for (Index first = 0; first < all; first += 4 * kThreads) {
    const Index at = first + 4 * threadIdx.x;
    unsigned count[4], sum = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      count[i] = at + i < all ? args.counts[at + i] : 0u;
      sum += count[i];
    }
    unsigned upto = sum;
#pragma unroll
    for (int apart = 1; apart < 32; apart *= 2) {
      const unsigned other = __shfl_up_sync(0xffffffffu, upto, apart);
      if (lane >= apart) upto += other;
    }
    __syncthreads();  // the round before has been read
    if (lane == 31) of_warp[warp] = upto;
    __syncthreads();
    unsigned total = 0, here = before + upto - sum;
    for (int i = 0; i < kThreads / 32; ++i) {
      here += i < warp ? of_warp[i] : 0u;
      total += of_warp[i];
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (at + i < all) args.counts[at + i] = here;
      here += count[i];
    }
    before += total;
  }
}
