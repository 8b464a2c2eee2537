// Where a thread stands in a linear recurrence over [B, T, C], and what it does there: what all kernels of it share.
//
// The text of each kernel begins with Storage, Rule and kPass, one of the structs in pass.h.

#include "backend/cuda/kernels/scan/pass.h"

constexpr int kVector = kPass.tile.vector, kLanes = kPass.tile.lanes, kGroups = kPass.tile.groups,
              kSteps = kPass.tile.steps;
constexpr bool kLengths = kPass.tile.lengths, kReset = kPass.tile.reset, kRestarts = kPass.tile.restarts;
constexpr int kThreads = kLanes * kGroups;
constexpr int kTileChannels = kLanes * kVector;
static_assert(kSteps <= 32, "resets are the bits of a word");

#include "backend/cuda/kernels/scan/scan_arguments.h"

using Values = Vector<Storage, kVector>;

/// A state after a stretch of steps. Gains of many steps may overflow where the state is still zero, and underflow
/// where it is infinite, which no decay makes finite.
PENSTOCK_DEVICE float Through(float gain, float offset, float state) {
  const bool nothing = state == 0.0f || (kReset && gain == Gain<Rule>::reset());
  const bool endless = !kReset && gain == 0.0f && !Gain<Rule>::is_log && fabsf(state) > 3.402823466e38f;
  return nothing ? offset : endless ? state : Gain<Rule>::advance(gain, state, offset);
}

/// One row and one tile of its channels.
struct Place {
  const ScanArguments& args;
  int number;

  /// Returns the start of the states [B, C] of the row and the channels.
  __device__ Index states() const {
    return (Index)(number / args.channel_tiles) * args.channels + number % args.channel_tiles * kTileChannels;
  }
  /// One of states [B, C]; null: zeros.
  __device__ float of(const float* all, int channel) const {
    const bool exists = number % args.channel_tiles * kTileChannels + channel < args.channels;
    return all != nullptr && exists ? all[states() + channel] : 0.0f;
  }
  /// The state before the first step.
  __device__ float entry(int channel) const { return of(args.state_in, channel); }
};

/// The steps and channels of one thread. Steps count from where the recurrence starts: the last one if it descends.
struct Span {
  int row, first_row_step;    // the row, and where in its tensors it starts (packed rows)
  int length, padded;         // steps that exist, and that have memory
  int chunk_begin;            // first step of the chunk, in the order of the recurrence
  int begin;                  // and of this thread
  int first_channel;          // of the tile
  int channel, tile_channel;  // of C and of the tile: the first one of this thread
  bool active;                // the channel exists
  int valid;                  // steps of this thread that exist
  unsigned resets;            // bit k: the state starts again before step k
  bool descending;
  const ScanArguments* given;  // with kRestarts

  /// Sets what depends on the chunk.
  __device__ __forceinline__ void move_to(const ScanArguments& args, int first, int group) {
    chunk_begin = first;
    begin = chunk_begin + group * kSteps;
    valid = active ? min(max(length - begin, 0), kSteps) : 0;
    resets = 0;
    if constexpr (kRestarts) given = &args;
    if constexpr (kReset) {
      for (int k = 0; k < valid; ++k) {
        const Index t = first_row_step + time(begin + k);
        const unsigned char reset = args.reset[row * args.reset_row_stride + t * args.reset_step_stride];
        resets |= (reset != 0 ? 1u : 0u) << k;
      }
    }
  }

  __device__ __forceinline__ bool starts_again(int k) const { return kReset && (resets >> k & 1); }

  /// Returns the state of a channel with which the row starts again before step k.
  __device__ float restart(int k, int i) const {
    if constexpr (!kRestarts) return 0.0f;
    return given->restarts[row * given->restart_row + time(begin + k) * given->restart_step + channel + i];
  }
  /// Adds to the gradient of restart().
  __device__ void add_drestart(int k, int i, float gradient) const {
    if (!kRestarts || given->drestarts == nullptr) return;
    given->drestarts[begin / kSteps * given->drestart_group + row * given->drestart_row +
                     time(begin + k) * given->drestart_step + channel + i] += gradient;
  }

  /// Index in T of a step of the recurrence; steps beyond the length are padding and count upwards.
  __device__ int time(int step) const { return descending && step < length ? length - 1 - step : step; }

  __device__ char* start(const ScanTensor& tensor, int from_channel, int step) const {
    return tensor.data + row * tensor.row_stride + (first_row_step + time(step)) * tensor.step_stride +
           (Index)from_channel * Storage::bytes;
  }
  __device__ char* at(const ScanTensor& tensor, int step) const { return start(tensor, channel, step); }
  /// Returns the distance from one step to the next, if both exist. The compiler may not know that it is the same
  /// for every tile: it would keep all multiples of it in registers.
  __device__ Index stride(const ScanTensor& tensor) const {
    Index stride = descending ? -tensor.step_stride : tensor.step_stride;
    asm volatile("" : "+l"(stride));
    return stride;
  }
};

/// Writes zeros where a tensor has memory but the row no step.
PENSTOCK_DEVICE void ClearPadding(const Span& span, const ScanTensor& tensor) {
  if (!span.active) return;
  for (int k = span.valid; k < kSteps && span.begin + k < span.padded; ++k) {
    Values::zero().store(span.at(tensor, span.begin + k));
  }
}

/// A row of a chain, wherever its threads stand.
PENSTOCK_DEVICE Span FindRow(const ScanArguments& args, int number) {
  Span span;
  span.row = number / args.channel_tiles;
  span.first_row_step = 0;
  span.length = span.padded = (int)args.steps;
  span.descending = args.descending != 0;
  if constexpr (kLengths) {
    if (args.cu_seqlens != nullptr) {
      // Numbers from outside that nobody could check without waiting for the GPU: no row leaves the tensor.
      const Index first = min(max(args.cu_seqlens[span.row], 0ll), args.steps);
      span.first_row_step = (int)first;
      span.length = (int)min(max(args.cu_seqlens[span.row + 1] - first, 0ll), args.steps - first);
      span.padded = span.length;
      span.row = 0;
    } else {
      span.length = (int)min(max(args.lengths[span.row], 0ll), args.steps);
    }
  }
  return span;
}

/// Finds the span of thread `lane` over channels and `group` over time of a block: a row and a tile of channels, in the
/// chunk that begins with a step.
PENSTOCK_DEVICE Span FindSpan(const ScanArguments& args, int number, int chunk_begin, int lane, int group) {
  Span span = FindRow(args, number);
  span.tile_channel = lane * kVector;
  span.first_channel = number % args.channel_tiles * kTileChannels;
  span.channel = span.first_channel + span.tile_channel;
  span.active = span.channel < args.channels;
  span.move_to(args, chunk_begin, group);
  return span;
}

/// Finds the span of a thread in a block whose threads count the channels first.
PENSTOCK_DEVICE Span FindSpan(const ScanArguments& args, int number, int chunk_begin, int group) {
  return FindSpan(args, number, chunk_begin, (int)threadIdx.x % kLanes, group);
}

/// The values of the learnt vectors of a thread's channels.
struct ChannelVectors {
  LearntValues<Rule> of[kVector];

  __device__ __forceinline__ void read(const ScanArguments& args, const Span& span) {
    using One = Vector<Storage, 1>;
#pragma unroll
    for (int k = 0; k < LearntValues<Rule>::count; ++k) {
      const char* const vector = args.learnt + ((Index)k * args.channels + span.channel) * Storage::bytes;
      for (int i = 0; i < kVector; ++i) {
        of[i].of[k] = span.active ? One::read(vector + i * Storage::bytes).get(0) : 0.0f;
      }
    }
  }
};

/// An op's steps of this thread, from the state before them to the one after.
template <class Op>
PENSTOCK_DEVICE void RunSteps(Op& op, const Span& span, float (&state)[kVector]) {
  if (span.valid == kSteps) {
#pragma unroll
    for (int k = 0; k < kSteps; ++k) op.step(span, k, state);
  } else {
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      if (k < span.valid) op.step(span, k, state);
    }
  }
}

/// The state after a row's last step, from the thread that holds it.
PENSTOCK_DEVICE void StoreLast(const Place& place, const Span& span, int group, const float (&state)[kVector]) {
  const bool holds_end =
      span.valid > 0 ? span.begin + span.valid == span.length : span.length == 0 && group == 0 && span.active;
  if (place.args.state_out == nullptr || !holds_end) return;
  float* out = place.args.state_out + place.states() + span.tile_channel;
  for (int i = 0; i < kVector; ++i) out[i] = state[i];
}

/// Effect of steps on a state: gain * state + offset.
struct Effect {
  float gain = Gain<Rule>::none(), offset = 0.0f;

  /// Appends later steps.
  __device__ __forceinline__ void append(float next_gain, float next_offset) {
    offset = Through(next_gain, next_offset, offset);
    gain = kReset && next_gain == Gain<Rule>::reset() ? next_gain : Gain<Rule>::together(gain, next_gain);
  }
};

/// The effect of each group's steps on a state, and the state that enters before the first group.
struct Stretches {
  float gain[kGroups][kTileChannels];
  float offset[kGroups][kTileChannels];
  float carry[kTileChannels];

  /// Stores the effect of this thread's steps for the others, who read it behind a barrier. Steps that do not exist may
  /// count: they come last.
  template <class Op>
  __device__ __forceinline__ void tell(const Op& op, const Span& span, int group) {
    float of_gain[kVector], of_offset[kVector];
    for (int i = 0; i < kVector; ++i) of_gain[i] = Gain<Rule>::none(), of_offset[i] = 0.0f;
#pragma unroll
    for (int k = 0; k < kSteps; ++k) op.compose(span, k, of_gain, of_offset);
    for (int i = 0; i < kVector; ++i) {
      gain[group][span.tile_channel + i] = of_gain[i];
      offset[group][span.tile_channel + i] = of_offset[i];
    }
  }

  /// Returns the effect of the first `groups` groups together.
  __device__ __forceinline__ Effect effect(int groups, int channel) const {
    Effect all;
#pragma unroll 4
    for (int group = 0; group < groups; ++group) all.append(gain[group][channel], offset[group][channel]);
    return all;
  }
};
