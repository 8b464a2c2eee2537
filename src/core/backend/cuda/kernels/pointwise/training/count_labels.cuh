// Counts the scored positions, and makes of them what the gradient is multiplied with. One block.
//
// Constants: kThreads.

#include "backend/cuda/kernels/pointwise/arguments.cuh"
#include "backend/cuda/kernels/pointwise/blocks.cuh"

extern "C" __global__ void __launch_bounds__(kThreads) CountLabels(const __grid_constant__ LossArguments args) {
  WaitForKernelBefore();
  int scored = 0;
#pragma unroll 8
  for (Index row = threadIdx.x; row < args.rows; row += kThreads) scored += args.labels[row] >= 0 ? 1 : 0;
  scored = SumOfBlock(scored);
  if (threadIdx.x != 0) return;
  args.sums->scored = scored;
  args.sums->weight = scored;
  const float scale = args.loss_scale == nullptr ? 1.0f : *args.loss_scale;
  args.sums->gradient_scale = scored > 0 ? __fdiv_rn(scale, (float)scored) : 0.0f;
}
