// The exchange of the chip kernels: pieces that all CTAs of a team send each other through the second-level cache.
// A piece is its own flag: 16 bytes of values, and no 32-bit word of them has all bits set. The receiver reads it until
// it is there, on its way to shared memory or to the registers of a product. Buffers take turns: a CTA that has all
// sums of exchange n knows that every CTA of the team has sent exchange n - 1 and therefore has read exchange n - 2, so
// it may clear its own pieces of exchange n - 2. Of N buffers, exchange n + N - 2 is the next one in that place: a
// fence every N / 2 exchanges is enough for all CTAs to see the place empty before. A fence takes as long as half a
// step.
// Included by chip.cuh, behind its constants and Team.

constexpr int kBuffers = ChipShape::exchanges(kBackward), kFenced = ChipShape::fenced(kBackward);
constexpr unsigned kAbsent = 0xffffffffu;
/// Some ten seconds without a piece are an error of the launch instead of a GPU that hangs.
constexpr int kMostTries = 1 << 24;

PENSTOCK_DEVICE uint4 ReadShared(const char* global) {
  uint4 v;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(global)
               : "memory");
  return v;
}
PENSTOCK_DEVICE void WriteShared(char* global, const uint4& v) {
  asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(global), "r"(v.x), "r"(v.y), "r"(v.z),
               "r"(v.w)
               : "memory");
}
PENSTOCK_DEVICE bool IsAbsent(const uint4& v) {
  return v.x == kAbsent || v.y == kAbsent || v.z == kAbsent || v.w == kAbsent;
}
/// A float whose bits are all set, which no arithmetic makes, becomes another number that is none.
PENSTOCK_DEVICE unsigned Sendable(unsigned word) { return kBytes == 4 && word == kAbsent ? 0x7fffffffu : word; }

/// The pieces of one team.
struct Exchange {
  static constexpr int bytes = kChip.exchange_bytes(kBackward);
  static constexpr int own_bytes = bytes - kChip.published_bytes();  // without means
  static constexpr int gate_bytes = kChip.blocks_of_team() * kPieces * kRows * 16;
  static constexpr int gathered_gate_bytes = kChip.gathered_blocks() * kPieces * kRows * 16;
  char* first;  // of the team's first buffer
  Index apart;  // from buffer to buffer

  PENSTOCK_DEVICE Exchange of(char* exchange, const Team& team, int teams) {
    return {exchange + (Index)team.number * bytes, (Index)teams * bytes};
  }
  __device__ __forceinline__ char* buffer(int number) const { return first + (number & (kBuffers - 1)) * apart; }

  /// Sends a piece, `at` bytes from a buffer's start, as part of exchange `number`.
  __device__ __forceinline__ void send(int number, int at, const uint4& v) const {
    WriteShared(buffer(number) + at, make_uint4(Sendable(v.x), Sendable(v.y), Sendable(v.z), Sendable(v.w)));
  }
  /// Clears the pieces of exchange `number`; call it after send().
  __device__ __forceinline__ void clear(int number, int at) const {
    WriteShared(buffer(number - 2) + at, make_uint4(kAbsent, kAbsent, kAbsent, kAbsent));
  }

  /// Waits for this CTA's part of an exchange, and lays it into shared memory.
  __device__ __forceinline__ void gather(int number, int rank, char* shared) const {
    constexpr int all = kChip.gathered_pieces(kBackward) * kRows;
    constexpr int of_gate = gathered_gate_bytes / 16, at_once = ChipShape::polled(all, kThreads);
    const char* const from = buffer(number) + rank * gathered_gate_bytes;
#pragma unroll 1
    for (int begin = threadIdx.x; begin < all; begin += kThreads * at_once) {
      uint4 v[at_once];
      unsigned absent = 0;
#pragma unroll
      for (int j = 0; j < at_once; ++j) {
        if (begin + j * kThreads < all) absent |= 1u << j;
      }
      int tries = 0;
#pragma unroll 1
      while (absent != 0) {
        // All that is still absent at once: one after the other would each take the time of a read.
#pragma unroll
        for (int j = 0; j < at_once; ++j) {
          const int i = begin + j * kThreads;
          if (absent >> j & 1) v[j] = ReadShared(from + (Index)(i / of_gate) * gate_bytes + i % of_gate * 16);
        }
#pragma unroll
        for (int j = 0; j < at_once; ++j) {
          if ((absent >> j & 1) == 0 || IsAbsent(v[j])) continue;
          *(uint4*)(shared + (begin + j * kThreads) * 16) = v[j];
          absent &= ~(1u << j);
        }
        if (++tries == kMostTries) asm volatile("trap;");
      }
    }
  }
};

/// Makes what clear() wrote visible before anything is sent later.
PENSTOCK_DEVICE void ShowCleared(int number) {
  if ((number & (kFenced - 1)) == kFenced - 1) asm volatile("fence.acq_rel.gpu;" ::: "memory");
}
