// dx_t = the sum over j of weight[j] dy_{t+j}, up to the end of the row or a reset.

#include "backend/cuda/kernels/pointwise/convolution/long_convolution.cuh"

extern "C" __global__ void __launch_bounds__(kThreads)
    LongConvolutionBackward(const __grid_constant__ ConvolutionArguments args) {
  WaitForKernelBefore();
  const Index value = (Index)blockIdx.x * kThreads + threadIdx.x;
  if (value >= (Index)args.rows * args.steps * kWidth) return;
  const Value at(args, value);
  const int t = at.place.step;
  float dx = 0.0f;
  for (int j = 0; j < kTaps && t + j < at.place.length; ++j) {
    if (j > 0 && at.reset_at(args, t + j)) break;
    dx =
        __fmaf_rn(args.weight[(Index)j * kWidth + at.column], LoadOne<Storage>(args.dy, value + (Index)j * kWidth), dx);
  }
  StoreOne<Storage>(args.y, value, dx);
}
