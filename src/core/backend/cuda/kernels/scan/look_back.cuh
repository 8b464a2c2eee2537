// One pass over a long recurrence: blocks take chunks of T, and each hands the state on to the next through memory
// (Merrill and Garland's decoupled look-back). A block publishes the effect of its chunk on whatever state enters it as
// soon as its loads have arrived, and the state that leaves the chunk once it knows the one that entered. A block that
// waits looks back over the nearest `kWindow` chunks: the latest state there, carried through the effects after it.
//
// The state that leaves a chunk is always gain * state + offset of that chunk, whichever block computes it, so results
// do not depend on how far back a block had to look.

#include "backend/cuda/kernels/scan/chain.cuh"

/// Values that the threads of a block exchange.
struct ScanShared {
  Stretches stretches[2];
  float window_gain[kWindow][kTileChannels];
  float window_value[kWindow][kTileChannels];
  unsigned window_tag[kWindow][kTileChannels];
  Effect whole[kTileChannels];  // of the chunk
  unsigned epoch;
  unsigned ticket[2];
};

/// This thread's part of the window: places thread, thread + kThreads, ... of [kWindow, kTileChannels].
struct WindowPart {
  static constexpr int places = (kWindow * kTileChannels + kThreads - 1) / kThreads;
  Tagged state[places], gain[places];

  /// Tag 0: nothing that can be used yet.
  __device__ __forceinline__ void load(const Chain& chain, unsigned epoch_tag) {
#pragma unroll
    for (int n = 0; n < places; ++n) {
      const int place = threadIdx.x + n * kThreads, channel = place % kTileChannels;
      const int which = chain.chunk - 1 - place / kTileChannels;
      state[n] = gain[n] = {0.0f, epoch_tag + 2};
      if (place >= kWindow * kTileChannels) continue;
      if (which < 0) {
        state[n].value = chain.entry(channel);
      } else {
        // The gain first: it was published first.
        gain[n] = LoadTagged(chain.gain_at(which, channel));
        state[n] = LoadTagged(chain.state_at(which, channel));
      }
      const bool half = state[n].tag == epoch_tag + 1 && gain[n].tag != epoch_tag + 1;
      if (half || state[n].tag - epoch_tag - 1 > 1u) state[n].tag = 0;
    }
  }

  /// Loads again what had nothing to tell until all have.
  __device__ __forceinline__ void wait(const Chain& chain, unsigned epoch_tag) {
#pragma unroll
    for (int n = 0; n < places; ++n) {
      const int place = threadIdx.x + n * kThreads, channel = place % kTileChannels;
      const int which = chain.chunk - 1 - place / kTileChannels;
      while (state[n].tag == 0) {
        gain[n] = LoadTagged(chain.gain_at(which, channel));
        state[n] = LoadTagged(chain.state_at(which, channel));
        const bool half = state[n].tag == epoch_tag + 1 && gain[n].tag != epoch_tag + 1;
        if (half || state[n].tag - epoch_tag - 1 > 1u) state[n].tag = 0;
      }
    }
  }

  /// Shows it to the others.
  __device__ __forceinline__ void show(ScanShared& shared) const {
#pragma unroll
    for (int n = 0; n < places; ++n) {
      const int place = threadIdx.x + n * kThreads;
      if (place >= kWindow * kTileChannels) continue;
      shared.window_gain[place / kTileChannels][place % kTileChannels] = gain[n].value;
      shared.window_value[place / kTileChannels][place % kTileChannels] = state[n].value;
      shared.window_tag[place / kTileChannels][place % kTileChannels] = state[n].tag;
    }
  }
};

/// The state that enters this block's chunk at one channel, if the window holds one that is known and all effects after
/// it.
PENSTOCK_DEVICE bool FoldWindow(const ScanShared& shared, int channel, unsigned epoch_tag, float& state) {
  int found = 0;
  while (found < kWindow && shared.window_tag[found][channel] == epoch_tag + 1) ++found;
  if (found == kWindow || shared.window_tag[found][channel] != epoch_tag + 2) return false;
  state = shared.window_value[found][channel];
  while (--found >= 0) {
    state = Through(shared.window_gain[found][channel], shared.window_value[found][channel], state);
  }
  return true;
}

/// Every thread of the block calls this once it has written its stretch and met the others at a barrier; `first` is
/// what threads below kTileChannels saw of the chunk before, at their channel, and `ready` whether all of them saw its
/// state. Leaves the state that enters the chunk in stretches.carry, for all to see. Calls between() once, behind the
/// first look at the window, if there is one: what is asked for after it does not delay it.
template <class Between>
PENSTOCK_DEVICE void PassOn(ScanShared& shared, Stretches& stretches, const Chain& chain, Tagged first, bool ready,
                            bool last, const Between& between) {
  const int thread = threadIdx.x;
  const bool owner = thread < kTileChannels;
  const unsigned epoch_tag = 2 * shared.epoch;
  float state = first.value;
  bool known = true;
  if (owner) {
    // Kept where it takes no registers.
    const Effect whole = shared.whole[thread] = stretches.effect(kGroups, thread);
    known = chain.knows(first, epoch_tag);
    if (!known && !last) {
      StoreTagged(chain.gain_at(chain.chunk, thread), whole.gain, epoch_tag + 1);
      StoreTagged(chain.state_at(chain.chunk, thread), whole.offset, epoch_tag + 1);
    }
  }
  if (!ready) {
    for (bool looked = false;; looked = true) {
      WindowPart part;
      part.load(chain, epoch_tag);
      if (!looked) between();
      part.wait(chain, epoch_tag);
      part.show(shared);
      __syncthreads();
      if (owner && !known) known = FoldWindow(shared, thread, epoch_tag, state);
      if (__syncthreads_and(known)) break;
    }
  }
  if (owner) {
    stretches.carry[thread] = state;
    const Effect whole = shared.whole[thread];
    if (!last)
      StoreTagged(chain.state_at(chain.chunk, thread), Through(whole.gain, whole.offset, state), epoch_tag + 2);
  }
}
