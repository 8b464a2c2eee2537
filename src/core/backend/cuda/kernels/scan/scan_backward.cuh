// Gradients of y_t = a_t y_{t-1} + b_t, from the last step to the first. A rule makes a and b of some values: the
// gradients of these values are the result. in[g] is value g, in[kReadBack] is y, in[kReadBack + 1] is dy; out[g]
// becomes the gradient of value g; each [B, T, C]. Outputs may be the values or dy, but not y. The state that is
// carried is a_t db_t, the gradient of the state before step t: state_in is the gradient of the last state, state_out
// that of the first, and `entry` the first state itself.

#include "backend/cuda/kernels/cells.cuh"
#include "backend/cuda/kernels/scan/run.cuh"

constexpr int kReadBack = kPass.read_back;

struct BackwardOp {
  static constexpr int kInputs = kReadBack + 2;
  static constexpr int kAhead = kReadBack;  // the state before a step is the output of the next one of the recurrence
  Values value[kSteps][kReadBack], before[kSteps], dy[kSteps];
  ChannelVectors learnt, dlearnt;
  char* out[Rule::gates];
  Index stride[Rule::gates];
  const float* entry;
  int entry_step;  // the step of this thread that is the first in time, or -1

  template <class Source>
  __device__ __forceinline__ void load(const ScanArguments& args, const Span& span, const Source& source) {
    learnt.read(args, span);
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
#pragma unroll
      for (int g = 0; g < kReadBack; ++g) value[k][g] = source.at(g, k);
      before[k] = source.at(kReadBack, k);
      dy[k] = source.at(kReadBack + 1, k);
    }
  }

  /// The values of a step; those that gradients do not depend on are zero.
  __device__ __forceinline__ void values_of(int k, int i, float (&wx)[Rule::gates]) const {
#pragma unroll
    for (int g = 0; g < Rule::gates; ++g) wx[g] = 0.0f;
#pragma unroll
    for (int g = 0; g < kReadBack; ++g) wx[g] = value[k][g].get(i);
  }

  __device__ __forceinline__ float gain_of(int k, int i) const {
    float wx[Rule::gates], gain, b;
    values_of(k, i, wx);
    Affine<Rule>(wx, learnt.of[i], gain, b);
    return gain;
  }

  __device__ __forceinline__ void compose(const Span& span, int k, float (&gain)[kVector],
                                          float (&offset)[kVector]) const {
    const bool again = span.starts_again(k);
    for (int i = 0; i < kVector; ++i) {
      const float of_step = gain_of(k, i);
      offset[i] = again ? 0.0f : Gain<Rule>::advance(of_step, dy[k].get(i) + offset[i], 0.0f);
      gain[i] = again ? Gain<Rule>::reset() : Gain<Rule>::together(gain[i], of_step);
    }
  }

  __device__ __forceinline__ void start(const ScanArguments& args, const Place& place, const Span& span) {
    for (int i = 0; i < kVector; ++i) dlearnt.of[i].clear();
      // Gates once more, rather than their results in registers.
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      for (int g = 0; g < kReadBack; ++g) value[k][g].forget();
    }
#pragma unroll
    for (int g = 0; g < Rule::gates; ++g) {
      out[g] = span.at(args.out[g], span.begin);
      stride[g] = span.stride(args.out[g]);
    }
    entry = args.entry == nullptr ? nullptr : args.entry + place.states() + span.tile_channel;
    entry_step = span.valid > 0 && span.begin + span.valid == span.length ? span.valid - 1 : -1;
  }

  __device__ __forceinline__ void step(const Span& span, int k, float (&state)[kVector]) {
    const bool again = span.starts_again(k);
    float gradient[Rule::gates][kVector];
    for (int i = 0; i < kVector; ++i) {
      float previous = before[k].get(i);
      if (k == entry_step && entry != nullptr) previous = entry[i];
      if (kRestarts && again) previous = span.restart(k, i);
      const float db = dy[k].get(i) + state[i];
      const float da = again && !kRestarts ? 0.0f : db * previous;
      float wx[Rule::gates], dwx[Rule::gates];
      values_of(k, i, wx);
      AffineBackward<Rule>(wx, learnt.of[i], da, db, dwx, dlearnt.of[i]);
#pragma unroll
      for (int g = 0; g < Rule::gates; ++g) gradient[g][i] = dwx[g];
      state[i] = again && !kRestarts ? 0.0f : Gain<Rule>::advance(gain_of(k, i), db, 0.0f);
      if (kRestarts && again) span.add_drestart(k, i, state[i]), state[i] = 0.0f;
    }
#pragma unroll
    for (int g = 0; g < Rule::gates; ++g) {
      Values::of(gradient[g]).store(out[g]);
      out[g] += stride[g];
    }
  }

  /// Writes what the thread's steps add to the gradients of the learnt vectors.
  __device__ __forceinline__ void finish(const ScanArguments& args, const Place& place, const Span& span) const {
    if constexpr (LearntValues<Rule>::count > 0) {
      if (span.valid == 0 || args.dlearnt == nullptr) return;
      const int row = place.number / args.channel_tiles, steps = row * args.step_groups + span.begin / kSteps;
      for (int i = 0; i < kVector; ++i) dlearnt.of[i].add_to(args.dlearnt, steps, args.channels, span.channel + i);
    }
  }

  PENSTOCK_DEVICE void clear_padding(const Span& span, const ScanArguments& args) {
    if constexpr (kLengths) {
#pragma unroll
      for (int g = 0; g < Rule::gates; ++g) ClearPadding(span, args.out[g]);
    }
  }
};

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks)
    ScanBackward(const __grid_constant__ ScanArguments args) {
  WaitForKernelBefore();
  Run<BackwardOp>(args);
}
