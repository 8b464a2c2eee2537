// A causal convolution of more taps than registers hold: a thread makes one value, and reads what it needs of the past.
//
// Constants: Storage, kTaps, kWidth, kThreads.

#include "backend/cuda/kernels/pointwise/values.cuh"

#include "backend/cuda/kernels/pointwise/arguments.cuh"

constexpr int kBefore = kTaps - 1;

struct Value {
  Place place;
  Index first;  // position of its row's first step
  int column;

  __device__ __forceinline__ Value(const ConvolutionArguments& args, Index value) {
    const Index position = value / kWidth;
    column = (int)(value - position * kWidth);
    place = PlaceOf(position, args.steps, args.lengths);
    first = position - place.step;
  }
  __device__ __forceinline__ bool reset_at(const ConvolutionArguments& args, int t) const {
    return args.reset != nullptr && t >= 0 && args.reset[first + t] != 0;
  }
  /// The input of step t, which the state holds for t < 0.
  __device__ __forceinline__ float read(const ConvolutionArguments& args, int t) const {
    if (t >= 0) return LoadOne<Storage>(args.x, (first + t) * kWidth + column);
    return args.state_in == nullptr ? 0.0f
                                    : args.state_in[((Index)place.row * kBefore + kBefore + t) * kWidth + column];
  }
};
