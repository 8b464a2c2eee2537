// weight * (y - target)^2 or weight * |y - target| summed by block, and the gradient, which may replace y where it has
// the same storage. Targets of weight 0 are not read.
//
// Constants: Storage (of the gradient), Outputs, kGradient (it is wanted), kSquares, kThreads, kWidth.

#include "backend/cuda/kernels/pointwise/values.cuh"

#include "backend/cuda/kernels/pointwise/arguments.cuh"
#include "backend/cuda/kernels/pointwise/blocks.cuh"

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
      if constexpr (kSquares) {
        loss += (double)weight * (difference * difference);
        slope = 2.0 * difference;
      } else {
        loss += (double)weight * fabs(difference);
        slope = difference > 0.0 ? 1.0 : difference < 0.0 ? -1.0 : difference;  // NaN stays NaN
      }
    }
    if constexpr (kGradient) {
      StoreOne<Storage>(args.gradient, at, weight == 0.0f ? 0.0f : (float)(scale * (double)weight * slope));
    }
  }
  loss = SumOfBlock(loss);
  broken = __syncthreads_or(broken);
  if (threadIdx.x == 0) args.partial[blockIdx.x] = {loss, 0.0, 0, 0, broken, 0};
}
