// y_t = bias + the sum over j < kTaps of weight[j] x_{t-j}; zeros beyond the lengths.

#include "backend/cuda/kernels/pointwise/convolution/convolution.cuh"

PENSTOCK_DEVICE void WriteState(const ConvolutionArguments& args, const Chunk& chunk, int column, Window& window) {
#pragma unroll
  for (int j = 0; j < kBefore; ++j) {
    float* const state = args.state_out + (chunk.row * kBefore + kBefore - 1 - j) * kWidth + column;
    for (int i = 0; i < kVector; ++i) state[i] = window.v[j][i];
  }
}

extern "C" __global__ void __launch_bounds__(kThreads)
    ConvolutionForward(const __grid_constant__ ConvolutionArguments args) {
  WaitForKernelBefore();
  const int column = (int)(blockIdx.x % args.tiles) * kTileColumns + (int)(threadIdx.x % 32) * kVector;
  const Index number = (Index)(blockIdx.x / args.tiles) * kGroups + threadIdx.x / 32;
  if (number >= (Index)args.rows * args.chunks || column >= kWidth) return;
  const Chunk chunk(args, number);
  float weight[kTaps][kVector], bias[kVector];
#pragma unroll
  for (int j = 0; j < kTaps; ++j) Load<F32>(args.weight, (Index)j * kWidth + column, weight[j]);
  Load<F32>(args.bias, column, bias);
  Window window;
  chunk.begin_window(args, column, window);
  if (args.state_out != nullptr && chunk.begin == 0 && chunk.length == 0) WriteState(args, chunk, column, window);
  Values ahead[kAtOnce];
  chunk.read(args.x, chunk.begin, chunk.end, column, ahead);
#pragma unroll 1
  for (int first = chunk.begin; first < chunk.end; first += kAtOnce) {
    Values x[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) x[i] = ahead[i];
    chunk.read(args.x, first + kAtOnce, chunk.end, column, ahead);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int t = first + i;
      if (t >= chunk.end) break;
      float y[kVector];
      for (int k = 0; k < kVector; ++k) y[k] = 0.0f;
      if (t < chunk.length) {
        if (chunk.reset_at(args, t)) window.clear();
        window.push(x[i]);
        for (int k = 0; k < kVector; ++k) y[k] = bias[k];
#pragma unroll
        for (int j = 0; j < kTaps; ++j) {
          for (int k = 0; k < kVector; ++k) y[k] = __fmaf_rn(weight[j][k], window.v[j][k], y[k]);
        }
        if (args.state_out != nullptr && t == chunk.length - 1) WriteState(args, chunk, column, window);
      }
      Store<Storage>(args.y, (chunk.position + t) * kWidth + column, y);
    }
  }
}
