// y_t = bias + the sum over j < kTaps of weight[j] x_{t-j}; zeros beyond the lengths.

#include "backend/cuda/kernels/pointwise/convolution/long_convolution.cuh"

extern "C" __global__ void __launch_bounds__(kThreads)
    LongConvolutionForward(const __grid_constant__ ConvolutionArguments args) {
  WaitForKernelBefore();
  const Index value = (Index)blockIdx.x * kThreads + threadIdx.x;
  if (value >= (Index)args.rows * args.steps * kWidth) return;
  const Value at(args, value);
  const int t = at.place.step;
  float y = 0.0f;
  if (at.place.exists()) {
    y = args.bias[at.column];
    for (int j = 0; j < kTaps; ++j) {
      if (j > 0 && at.reset_at(args, t - j + 1)) break;
      y = __fmaf_rn(args.weight[(Index)j * kWidth + at.column], at.read(args, t - j), y);
    }
  }
  StoreOne<Storage>(args.y, value, y);
}
