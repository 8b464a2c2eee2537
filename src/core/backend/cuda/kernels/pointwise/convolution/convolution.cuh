// Code of the passes of a causal convolution: a thread runs over the steps of a chunk of a row for kVector
// neighbouring channels, and the last inputs move through its registers.
//
// Constants: Storage, kTaps, kWidth, kVector, kGroups (of 32 threads, each at a chunk), kRun (steps of a chunk),
// kAtOnce (steps whose values are read together, while those before are worked on).

#include "backend/cuda/kernels/pointwise/values.cuh"

#include "backend/cuda/kernels/pointwise/arguments.cuh"

constexpr int kBefore = kTaps - 1;
constexpr int kThreads = 32 * kGroups;
constexpr int kTileColumns = 32 * kVector;

using Values = Packed<Storage, kVector>;

/// The values of the last kTaps steps, the newest first.
struct Window {
  float v[kTaps][kVector];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int j = 0; j < kTaps; ++j) {
      for (int i = 0; i < kVector; ++i) v[j][i] = 0.0f;
    }
  }
  __device__ __forceinline__ void push(const float (&newest)[kVector]) {
#pragma unroll
    for (int j = kTaps - 1; j > 0; --j) {
      for (int i = 0; i < kVector; ++i) v[j][i] = v[j - 1][i];
    }
    for (int i = 0; i < kVector; ++i) v[0][i] = newest[i];
  }
  __device__ __forceinline__ void push(const Values& newest) {
    float v[kVector];
    for (int i = 0; i < kVector; ++i) v[i] = newest.get(i);
    push(v);
  }
};

/// One chunk of a row.
struct Chunk {
  Index row, position;  // b, and the position of its first step
  int begin, end, length;

  __device__ __forceinline__ Chunk(const ConvolutionArguments& args, Index number) {
    row = (int)number / args.chunks;
    begin = ((int)number - (int)row * args.chunks) * kRun;
    end = min(begin + kRun, args.steps);
    length = args.lengths == nullptr ? args.steps : (int)args.lengths[row];
    position = row * args.steps;
  }
  __device__ __forceinline__ bool reset_at(const ConvolutionArguments& args, int t) const {
    return args.reset != nullptr && t >= 0 && t < length && args.reset[position + t] != 0;
  }
  /// kAtOnce steps of a tensor from `first` on; zero from `end` on, and where there is none.
  __device__ __forceinline__ void read(const char* tensor, int first, int end, int column, Values (&v)[kAtOnce]) const {
    const int stop = min(end, length);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      v[i] = first + i < stop ? Values::read(tensor, (position + first + i) * kWidth + column) : Values::zero();
    }
  }
  /// The input of step t, which the state holds for t < 0, value by value: states of other layers lie before it.
  __device__ __forceinline__ void read(const ConvolutionArguments& args, int t, int column, float (&v)[kVector]) const {
    for (int i = 0; i < kVector; ++i) v[i] = 0.0f;
    if (t >= 0) {
      if (t < length) Load<Storage>(args.x, (position + t) * kWidth + column, v);
    } else if (args.state_in != nullptr) {
      const float* const state = args.state_in + (row * kBefore + kBefore + t) * kWidth + column;
      for (int i = 0; i < kVector; ++i) v[i] = state[i];
    }
  }
  /// The inputs before the chunk.
  __device__ __forceinline__ void begin_window(const ConvolutionArguments& args, int column, Window& window) const {
    window.clear();
#pragma unroll
    for (int j = kBefore; j > 0; --j) {
      float v[kVector];
      read(args, begin - j, column, v);
      if (reset_at(args, begin - j)) window.clear();
      window.push(v);
    }
  }
};
