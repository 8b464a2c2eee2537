// dx_t = the sum over j of weight[j] dy_{t+j}, up to the end of the row or a reset, and the sums over the chunks of a
// block of the gradients of weight and bias.

#include "backend/cuda/kernels/pointwise/convolution/convolution.cuh"

struct Sums {
  float weight[kTaps][kVector], bias[kVector];
};

/// One chunk. Steps that lie up to kBefore beyond it hear of dx through dy alone.
PENSTOCK_DEVICE void RunSteps(const ConvolutionArguments& args, const Chunk& chunk, int column,
                              const float (&weight)[kTaps][kVector], Sums& sums) {
  Window x, dx;  // inputs so far; gradients of the last steps so far
  chunk.begin_window(args, column, x);
  dx.clear();
  int since = 0;  // steps since the chunk began, or a reset: those that hear of this one
  Values in_ahead[kAtOnce], out_ahead[kAtOnce];
  chunk.read(args.x, chunk.begin, chunk.end, column, in_ahead);
  chunk.read(args.dy, chunk.begin, chunk.end + kBefore, column, out_ahead);
#pragma unroll 1
  for (int first = chunk.begin; first < chunk.end + kBefore; first += kAtOnce) {
    Values in[kAtOnce], of_y[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) in[i] = in_ahead[i], of_y[i] = out_ahead[i];
    chunk.read(args.x, first + kAtOnce, chunk.end, column, in_ahead);
    chunk.read(args.dy, first + kAtOnce, chunk.end + kBefore, column, out_ahead);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int t = first + i;
      if (t >= chunk.end + kBefore) break;
      float out[kVector];
      for (int k = 0; k < kVector; ++k) out[k] = of_y[i].get(k);
      if (chunk.reset_at(args, t)) {
        x.clear();
        since = 0;
      }
      const float none[kVector] = {};
      dx.push(none);
      if (t < chunk.end && t < chunk.length) {
        x.push(in[i]);
#pragma unroll
        for (int j = 0; j < kTaps; ++j) {
          for (int k = 0; k < kVector; ++k) {
            sums.weight[j][k] = __fmaf_rn(out[k], x.v[j][k], sums.weight[j][k]);
          }
        }
        for (int k = 0; k < kVector; ++k) sums.bias[k] += out[k];
      }
#pragma unroll
      for (int j = 0; j < kTaps; ++j) {
        const bool hears = j <= since;
        for (int k = 0; k < kVector; ++k) {
          if (hears) dx.v[j][k] = __fmaf_rn(weight[j][k], out[k], dx.v[j][k]);
        }
      }
      ++since;
      const int done = t - kBefore;
      if (args.y != nullptr && done >= chunk.begin) {
        Store<Storage>(args.y, (chunk.position + done) * kWidth + column, dx.v[kBefore]);
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(kThreads)
    ConvolutionBackward(const __grid_constant__ ConvolutionArguments args) {
  WaitForKernelBefore();
  __shared__ float shared[kGroups][kTaps + 1][kTileColumns];
  const int lane = threadIdx.x % 32, group = threadIdx.x / 32;
  const int tile = blockIdx.x % args.tiles, part = blockIdx.x / args.tiles;
  const int column = tile * kTileColumns + lane * kVector;
  Sums sums;
#pragma unroll
  for (int k = 0; k < kVector; ++k) {
    sums.bias[k] = 0.0f;
#pragma unroll
    for (int j = 0; j < kTaps; ++j) sums.weight[j][k] = 0.0f;
  }
  if (column < kWidth) {
    float weight[kTaps][kVector];
#pragma unroll
    for (int j = 0; j < kTaps; ++j) Load<F32>(args.weight, (Index)j * kWidth + column, weight[j]);
    const Index all = (Index)args.rows * args.chunks, stride = (Index)args.parts * kGroups;
    for (Index number = (Index)part * kGroups + group; number < all; number += stride) {
      RunSteps(args, Chunk(args, number), column, weight, sums);
    }
  }
#pragma unroll
  for (int k = 0; k < kVector; ++k) {
    shared[group][kTaps][lane * kVector + k] = sums.bias[k];
#pragma unroll
    for (int j = 0; j < kTaps; ++j) shared[group][j][lane * kVector + k] = sums.weight[j][k];
  }
  __syncthreads();
  float* const partial = args.partial + (Index)part * (kTaps + 1) * kWidth;
  for (int i = threadIdx.x; i < (kTaps + 1) * kTileColumns; i += kThreads) {
    const int j = i / kTileColumns, c = i % kTileColumns;
    if (tile * kTileColumns + c >= kWidth) continue;
    float sum = shared[0][j][c];
    for (int other = 1; other < kGroups; ++other) sum += shared[other][j][c];
    partial[j * kWidth + tile * kTileColumns + c] = sum;
  }
}
