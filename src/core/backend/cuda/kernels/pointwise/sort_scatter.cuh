// Every position to its place. Warps take turns, so that equal digits keep their order.

#include "backend/cuda/kernels/pointwise/sort.cuh"

extern "C" __global__ void __launch_bounds__(kThreads) SortScatter(const __grid_constant__ SortArguments args) {
  WaitForKernelBefore();
  __shared__ unsigned next[kBins];
  for (int bin = threadIdx.x; bin < kBins; bin += kThreads)
    next[bin] = args.counts[(Index)bin * args.chunks + blockIdx.x];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const Index at = (Index)blockIdx.x * kThreads + threadIdx.x;
  const bool exists = at < args.positions;
  const TokenPosition item = exists ? ItemAt(args, at) : TokenPosition{0, 0};
  const int digit = exists ? DigitOf(args, item.token) : kBins;
  const unsigned equal = __match_any_sync(0xffffffffu, digit);
  const unsigned rank = __popc(equal & ((1u << lane) - 1));
  unsigned place = 0;
  for (int turn = 0; turn < kThreads / 32; ++turn) {
    __syncthreads();
    if (turn != warp) continue;
    if (exists) place = next[digit] + rank;
    __syncwarp();
    if (exists && rank == 0) next[digit] += __popc(equal);
  }
  if (exists) args.to[place] = item;
}
