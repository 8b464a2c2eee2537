// The sums over some of the rows of the gradients of weight and bias: a thread makes those of one tap, or of the bias,
// of one channel.

#include "backend/cuda/kernels/pointwise/convolution/long_convolution.cuh"

extern "C" __global__ void __launch_bounds__(kThreads)
    LongConvolutionWeights(const __grid_constant__ ConvolutionArguments args) {
  WaitForKernelBefore();
  constexpr Index size = (Index)(kTaps + 1) * kWidth;
  const int part = blockIdx.x / args.tiles;
  const Index which = (Index)(blockIdx.x % args.tiles) * kThreads + threadIdx.x;
  if (which >= size) return;
  const int tap = (int)(which / kWidth);
  const Index column = which - (Index)tap * kWidth;
  float sum = 0.0f;
  for (int row = part; row < args.rows; row += args.parts) {
    const Value at(args, (Index)row * args.steps * kWidth + column);
    int since = kTaps;  // steps since a reset: as many inputs before this one count
    for (int t = 0; t < at.place.length; ++t) {
      since = at.reset_at(args, t) ? 0 : min(since + 1, kTaps);
      const float dy = LoadOne<Storage>(args.dy, (at.first + t) * kWidth + column);
      if (tap == kTaps) {
        sum += dy;
      } else if (tap <= since) {
        sum = __fmaf_rn(dy, at.read(args, t - tap), sum);
      }
    }
  }
  args.partial[part * size + which] = sum;
}
