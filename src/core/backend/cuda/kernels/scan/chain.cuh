// The chunks of a row as blocks see them that pass the state on through memory: what has been published of each chunk.

/// A number and what it is, in one access of 8 bytes: other blocks see both or neither.
struct Tagged {
  float value;
  unsigned tag;
};

PENSTOCK_DEVICE Tagged LoadTagged(const unsigned long long* p) {
  unsigned long long word;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(p) : "memory");
  return {__uint_as_float((unsigned)word), (unsigned)(word >> 32)};
}

PENSTOCK_DEVICE void StoreTagged(unsigned long long* p, float value, unsigned tag) {
  const unsigned long long word = __float_as_uint(value) | (unsigned long long)tag << 32;
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(p), "l"(word) : "memory");
}

/// The chunks of one row and one tile of channels. Tags count launches: 2 epoch + 1 marks what a chunk does to a state
/// that enters it (its offset among the states, its gain among the gains), 2 epoch + 2 the state that leaves it.
struct Chain : Place {
  int chunk;  // of this block

  /// The places of a chunk for its state (or offset) and for its gain.
  __device__ unsigned long long* state_at(int which, int channel) const {
    auto* words = (unsigned long long*)(args.header + 1);
    return words + ((Index)which * args.chains + number) * kTileChannels + channel;
  }
  __device__ unsigned long long* gain_at(int which, int channel) const {
    return state_at(which, channel) + (Index)args.tiles * kTileChannels;
  }

  /// Reads, once, what is known of the state that enters this block's chunk.
  __device__ Tagged look(int channel) const {
    return chunk == 0 ? Tagged{entry(channel), 0} : LoadTagged(state_at(chunk - 1, channel));
  }
  /// Returns whether look() found the state itself.
  __device__ bool knows(Tagged seen, unsigned epoch_tag) const { return chunk == 0 || seen.tag == epoch_tag + 2; }
};
