// The last kBefore inputs of each row, the oldest first. A thread moves one channel of a row, from the oldest on: what
// it reads of the old state lies behind what it has written.

#include "backend/cuda/kernels/pointwise/convolution/long_convolution.cuh"

extern "C" __global__ void __launch_bounds__(kThreads)
    LongConvolutionState(const __grid_constant__ ConvolutionArguments args) {
  WaitForKernelBefore();
  const Index which = (Index)blockIdx.x * kThreads + threadIdx.x;
  if (which >= (Index)args.rows * kWidth) return;
  const Index row = which / kWidth;
  const Value at(args, row * args.steps * kWidth + (which - row * kWidth));
  const int last = at.place.length - 1;
  int known = 0;  // the inputs back to the last reset, or all
  while (known < kBefore && !(known > 0 && at.reset_at(args, last - known + 1))) ++known;
  for (int i = 0; i < kBefore; ++i) {
    const int back = kBefore - 1 - i;
    args.state_out[(row * kBefore + i) * kWidth + at.column] = back < known ? at.read(args, last - back) : 0.0f;
  }
}
