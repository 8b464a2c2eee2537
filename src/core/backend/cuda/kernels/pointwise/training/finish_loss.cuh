// Adds up what the blocks found, in their order. One block.
//
// Constants: kWeights (the blocks found weights, not losses), kThreads.

#include "backend/cuda/kernels/pointwise/arguments.cuh"
#include "backend/cuda/kernels/pointwise/blocks.cuh"

extern "C" __global__ void __launch_bounds__(kThreads) FinishLoss(const __grid_constant__ LossArguments args) {
  WaitForKernelBefore();
  double sum = 0.0;
  long long count = 0;
  bool broken = false;
  for (int block = threadIdx.x; block < args.blocks; block += kThreads) {
    const LossPartial& part = args.partial[block];
    sum += kWeights ? part.weight : part.sum;
    count += kWeights ? part.scored : part.correct;
    broken |= part.broken != 0;
  }
  sum = SumOfBlock(sum);
  count = SumOfBlock(count);
  broken = __syncthreads_or(broken);
  if (threadIdx.x != 0) return;
  if constexpr (kWeights) {
    args.sums->weight = sum;
    args.sums->scored = count;
    const float scale = args.loss_scale == nullptr ? 1.0f : *args.loss_scale;
    args.sums->gradient_scale = sum > 0.0 ? (float)((double)scale / sum) : 0.0f;
  } else {
    args.sums->sum = sum;
    args.sums->correct = count;
    args.sums->broken = broken ? kBrokenOutput : 0;
  }
}
