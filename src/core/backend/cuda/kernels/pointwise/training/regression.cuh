// weight * Rule::Term(y - target) summed by block, and the gradient, which may replace y where it has
// the same storage. Targets of weight 0 are not read.
//
// Constants: Storage (of the gradient), Outputs, kGradient (it is wanted), kThreads, kWidth. Rule: one of losses.h.

#include "backend/cuda/kernels/pointwise/values.cuh"

#include "backend/cuda/kernels/pointwise/arguments.cuh"
#include "backend/cuda/kernels/pointwise/blocks.cuh"

#define PENSTOCK_STEP PENSTOCK_DEVICE
#include "base/training/losses.h"

extern "C" __global__ void __launch_bounds__(kThreads) Regression(const __grid_constant__ LossArguments args) {
  WaitForKernelBefore();
  const Index size = args.rows * kWidth;
  const double scale = (double)args.sums->gradient_scale;
  double loss = 0.0;
  bool broken = false;
#pragma unroll 1
  for (Index at = (Index)blockIdx.x * kThreads + threadIdx.x; at < size; at += (Index)gridDim.x * kThreads) {
    const float y = LoadOne<Outputs>(args.y, at), weight = args.weights[at];
    double slope = 0.0;
    broken |= !Finite(y);
    if (weight != 0.0f) {
      const double difference = (double)y - (double)args.targets[at];
      loss += (double)weight * Rule::Term(difference);
      slope = Rule::Slope(difference);
    }
    if constexpr (kGradient) {
      StoreOne<Storage>(args.gradient, at, weight == 0.0f ? 0.0f : (float)(scale * (double)weight * slope));
    }
  }
  loss = SumOfBlock(loss);
  broken = __syncthreads_or(broken);
  if (threadIdx.x == 0) args.partial[blockIdx.x] = {loss, 0.0, 0, 0, broken, 0};
}
