// Code of both passes over many clusters: the team, its exchange (chip_exchange.cuh), and sums that the CTAs of a
// cluster add up among themselves.
//
// kBackward: which pass it is.

#include "backend/cuda/kernels/dense/cluster.cuh"
#include "plan/kernels/dense_chip_shape.h"

constexpr int kClusters = kPass.clusters;
constexpr bool kDirect = kPass.direct;
constexpr ChipShape kChip = {kShape, kClusters, kDirect};
constexpr int kThreads = kChip.threads(), kWarps = kChip.warps();
constexpr int kTilesM = kChip.chip_tiles_m(kBackward), kTilesK = kChip.chip_tiles_k(kBackward);
constexpr int kHalves = kChip.halves(kBackward), kSummed = kChip.summed_values(kBackward);
constexpr int kBlockFloats = kChip.block_floats(), kSlots = kChip.cell_slots();
static_assert(kChip.chip_shared_bytes(kBackward) == kSharedBytes, "the plan counts as the kernel does");

/// Place of a CTA: its cluster in the team, and its rank in the cluster.
struct Team {
  int number, cluster, rank, head, slice;

  PENSTOCK_DEVICE Team here(int first, int heads) {
    Team t;
    t.rank = (int)blockIdx.x % kCluster;
    t.cluster = (int)blockIdx.x / kCluster % kClusters;
    t.number = (int)blockIdx.x / (kCluster * kClusters);
    t.head = (first + t.number) % heads, t.slice = (first + t.number) / heads;
    return t;
  }
  /// The first block of units of this CTA, of the head's.
  __device__ __forceinline__ int first_block() const { return (cluster * kCluster + rank) * kBlocks; }
};

#include "backend/cuda/kernels/dense/chip_exchange.cuh"

/// Operand by which the warps of a CTA multiply R, staged in shared memory.
struct StagedOperand {
  Pieces pieces;  // of this lane's part
  char* gathered;
  int rank;

  PENSTOCK_DEVICE StagedOperand of(char* shared, unsigned base, int rank, int part, int lane) {
    return {Pieces::from(base + ClusterShape::start + part * (2 * kTilesK * kRows * 16), lane),
            shared + ClusterShape::start, rank};
  }
  /// The words of a matrix' columns, or of its rows if it is transposed: word `second` of k-tile k that a lane holds is
  /// word_of() of piece_of() of the CTA's pieces.
  PENSTOCK_DEVICE int piece_of(int part, int k, int second, int lane) { return part * kTilesK * 2 + 2 * k + second; }
  PENSTOCK_DEVICE int word_of(int k, int second, int lane) { return lane % 4; }

  /// Makes the sums over an exchange; below 0: over what lies in shared memory.
  template <class Matrix>
  __device__ __forceinline__ void multiply(Sums<kTilesM>& sums, const Matrix& matrix, const Exchange& exchange,
                                           int number) const {
    if (number >= 0) {
      // All warps have multiplied what was gathered before.
      __syncthreads();
      if (kExchanges) exchange.gather(number, rank, gathered);
    }
    __syncthreads();
    sums.multiply(matrix, pieces, 0);
  }
};

/// Operand by which a warp multiplies R, loaded from the second-level cache straight to registers: for pair q, lane (g,
/// t) has piece 4 q + t of row g in each tile.
struct DirectOperand {
  static constexpr int pairs = kChip.tile_pairs(kBackward), at_once = kChip.pairs_at_once(kBackward);
  static constexpr int all = kChip.gathered_pieces(kBackward), of_gate = all / kChip.sent_values(kBackward);
  /// True if the pieces of each part follow one another in memory.
  static constexpr bool in_one_gate = of_gate == all || of_gate % (4 * pairs) == 0;
  /// Every lane has a piece in each pair and tile: those of rows beyond the last read it again.
  static constexpr bool always = kExchanges && all == 4 * kParts * pairs && (kRows % 8 == 0 || kTilesN == 1);
  using Words = uint4[at_once][kTilesN];
  int first, start;  // piece of pair 0; bytes from the start of a buffer to this lane's of pair 0

  PENSTOCK_DEVICE DirectOperand of(char* shared, unsigned base, int rank, int part, int lane) {
    DirectOperand o;
    o.first = Held(part * 4 * pairs + lane % 4);
    const int from = rank * Exchange::gathered_gate_bytes + (always ? min(lane / 4, kRows - 1) : lane / 4) * 16;
    o.start = Held(from + (in_one_gate ? place(o.first) : 0));
    return o;
  }
  PENSTOCK_DEVICE int piece_of(int part, int k, int second, int lane) {
    return part * 4 * pairs + k / 2 * 4 + lane % 4;
  }
  PENSTOCK_DEVICE int word_of(int k, int second, int lane) { return k % 2 * 2 + second; }

  /// Makes the sums over an exchange.
  template <class Matrix>
  __device__ __forceinline__ void multiply(Sums<kTilesM>& sums, const Matrix& matrix, const Exchange& exchange,
                                           int number) const {
    const char* const from = exchange.buffer(number) + start;
    Words words[2];
    sums.clear();
    ask<true>(words[0], from, 0);
#pragma unroll
    for (int q = 0; q < pairs; q += at_once) {
      Words& now = words[q / at_once % 2];
      int tries = 0;
#pragma unroll 1
      while (__any_sync(0xffffffffu, lacks(now, q))) {
        // All that is still absent at once: one after the other would each take the time of a read.
        ask<false>(now, from, q);
        if (++tries == kMostTries) asm volatile("trap;");
      }
      if (q + at_once < pairs) ask<true>(words[(q / at_once + 1) % 2], from, q + at_once);
#pragma unroll
      for (int i = 0; i < at_once && q + i < pairs; ++i) {
#pragma unroll
        for (int j = 0; j < 2 && kMultiplies; ++j) {
          sums.add(matrix, 2 * (q + i) + j, [&](int n, int second) {
            const uint4& v = now[i][n];
            return j == 0 ? (second == 0 ? v.x : v.y) : (second == 0 ? v.z : v.w);
          });
        }
      }
    }
    sums.finish();
  }

 private:
  /// Returns the byte offset of a piece in a buffer.
  PENSTOCK_DEVICE int place(int piece) {
    return piece / of_gate * Exchange::gate_bytes + piece % of_gate * (kRows * 16);
  }
  __device__ __forceinline__ bool exists(int pair, int n) const {
    if (always) return true;
    if (!kExchanges || (all != 4 * kParts * pairs && first + 4 * pair >= all)) return false;
    return kRows % 8 == 0 || 8 * n + (int)threadIdx.x % 32 / 4 < kRows;
  }
  /// Loads the pairs from `pair` on: all of them, or those that are still absent.
  template <bool kAll>
  __device__ __forceinline__ void ask(Words& words, const char* from, int pair) const {
#pragma unroll
    for (int i = 0; i < at_once && pair + i < pairs; ++i) {
      const int there = in_one_gate ? (pair + i) * (4 * kRows * 16) : place(first + 4 * (pair + i));
#pragma unroll
      for (int n = 0; n < kTilesN; ++n) {
        if (kAll && !always) words[i][n] = make_uint4(0, 0, 0, 0);
        if (exists(pair + i, n) && (kAll || always || IsAbsent(words[i][n])))
          words[i][n] = ReadShared(from + there + n * 128);
      }
    }
  }
  __device__ __forceinline__ bool lacks(const Words& words, int pair) const {
    bool absent = false;
#pragma unroll
    for (int i = 0; i < at_once && pair + i < pairs; ++i) {
#pragma unroll
      for (int n = 0; n < kTilesN; ++n) absent |= IsAbsent(words[i][n]);
    }
    return absent;
  }
};

template <bool kFirst, class First, class Second>
struct ChooseType {
  using Type = First;
};
template <class First, class Second>
struct ChooseType<false, First, Second> {
  using Type = Second;
};
using Operand = ChooseType<kDirect, DirectOperand, StagedOperand>::Type;

/// Keeps a warp's sums in the CTA's own shared memory, two rows at once. Two buffers take turns.
struct SumKeeper {
  unsigned there;  // of this lane's first sums
  int halves;      // of tiles that exist

  __device__ __forceinline__ void init(unsigned base, int group, int part, int rank, int lane) {
    const int first = group * kHalves, all = kBlocks * kSummed;
    const int floats = (part * all + first) * kBlockFloats + kShape.place(lane / 4, lane % 4 * 2);
    there = (unsigned)Held((int)base + kChip.chip_sums_at(kBackward) + floats * 4);
    halves = all - first;
  }
  __device__ __forceinline__ void send(const Sums<kTilesM>& own, int parity, int lane) const {
    const unsigned to = there + parity * (kChip.sums_floats(kBackward) * 4);
    own.for_each(lane, [&](int m, int half, int row, float first, float second) {
      const int q = 2 * m + half;
      if (q >= kHalves || (kHalves * kGroups != kBlocks * kSummed && q >= halves)) return;
      const int at = (q * kBlockFloats + row - lane % 4 * 2) * 4;
      asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(to + at), "f"(first), "f"(second) : "memory");
    });
  }
};

/// Sends a warp's sums to the CTAs whose units they are of, four rows at once. Two buffers take turns.
struct SumSender {
  static constexpr int parity_bytes = kChip.sums_floats(kBackward) * 4;
  /// Bytes of the sums of all sources.
  static constexpr int bytes = kChip.sources() * kBlocks * kSummed * 8 * ((kRows + 3) / 4) * 16;
  unsigned there[kTilesM], barrier_there[kTilesM];  // 0: nowhere

  __device__ __forceinline__ void init(unsigned base, int group, int part, int rank, int lane) {
#pragma unroll
    for (int m = 0; m < kTilesM; ++m) {
      const int of_group = 2 * m + lane % 2, half = group * kHalves + of_group;
      const bool exists = of_group < kHalves && half < kChip.blocks_of_cluster() * kSummed;
      const int block = exists ? half / kSummed : 0, owner = block / kBlocks;
      const int source = rank * kParts + part;
      const int floats = ((source * kBlocks + block % kBlocks) * kSummed + half % kSummed) * kBlockFloats +
                         kShape.place(lane / 4, lane % 4 / 2 * 4);
      const unsigned window = InBlock(base, owner);
      barrier_there[m] = (unsigned)Held((int)window);
      there[m] = (unsigned)Held(exists ? (int)window + kChip.chip_sums_at(kBackward) + floats * 4 : 0);
    }
  }
  __device__ __forceinline__ void send(const Sums<kTilesM>& own, int parity, int lane) const {
#pragma unroll
    for (int m = 0; m < kTilesM; ++m) {
#pragma unroll
      for (int n = 0; n < kTilesN; ++n) {
        const uint4 rows = FourRows(own.sum[0][m][n], lane);
        if (there[m] == 0 || 8 * n + lane % 4 / 2 * 4 >= kRows) continue;
        const unsigned to = there[m] + parity * parity_bytes + n * 32;
        StoreRemote(to, rows, barrier_there[m] + parity * 8);
      }
    }
  }
};

using OwnSums = ChooseType<kCluster == 1, SumKeeper, SumSender>::Type;

/// Returns the place of the sums of a lane's unit and row, in bytes from the start of shared memory.
PENSTOCK_DEVICE int SumPlace(int block, int slot) {
  return kChip.chip_sums_at(kBackward) +
         (block * kSummed * kBlockFloats + kShape.place((int)threadIdx.x % 8, slot)) * 4;
}
/// Loads a float by its address in shared memory. The compiler would find the address of `shared` anew at each use.
PENSTOCK_DEVICE float LoadSum(unsigned address) {
  float value;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
  return value;
}
/// Returns the sum of one value over all sources; `place` is an address in shared memory.
PENSTOCK_DEVICE float Total(unsigned place, int value, int parity) {
  const unsigned p = place + parity * SumSender::parity_bytes + value * (kBlockFloats * 4);
  constexpr int of_source = kBlocks * kSummed * kBlockFloats * 4;
  constexpr int chains = kChip.sources() < 4 ? kChip.sources() : 4;
  float sum[chains];
#pragma unroll
  for (int i = 0; i < chains; ++i) sum[i] = LoadSum(p + i * of_source);
#pragma unroll
  for (int i = chains; i < kChip.sources(); ++i) sum[i % chains] += LoadSum(p + i * of_source);
#pragma unroll
  for (int i = 1; i < chains; ++i) sum[0] += sum[i];
  return sum[0];
}

/// The barriers of both buffers of sums; of CTAs that have no others, the block's own barrier does.
struct SumBarriers {
  static constexpr int count = 2;
  CopyBarrier* barriers;

  PENSTOCK_DEVICE SumBarriers make(char* shared) {
    SumBarriers b{(CopyBarrier*)shared};
    if constexpr (kCluster > 1) {
      if (threadIdx.x < 2) {
        b.barriers[threadIdx.x].init(1);
        b.barriers[threadIdx.x].expect(SumSender::bytes);
        ShowBarriers();
      }
    }
    return b;
  }
  /// Waits for all CTAs of the cluster: their barriers exist, or are no longer needed.
  PENSTOCK_DEVICE void meet() {
    if constexpr (kCluster > 1) {
      ClusterArrive();
      ClusterWait();
    } else {
      __syncthreads();
    }
  }
  /// Waits for the sums of round 0, 1, ...
  __device__ __forceinline__ void wait(int round) const {
    if constexpr (kCluster > 1) {
      barriers[round & 1].wait(round / 2 & 1);
      if (threadIdx.x == 0) barriers[round & 1].expect(SumSender::bytes);
    } else {
      __syncthreads();
    }
  }
};

#ifdef PENSTOCK_MEANS
/// A CTA has a pair for each row and block of units. Eight threads share kSlots pairs.
PENSTOCK_DEVICE int IndexOfSlot(int s) { return (int)threadIdx.x / 8 * kSlots + s; }
PENSTOCK_DEVICE int RowOfSlot(int s) { return min(IndexOfSlot(s) / kBlocks, kRows - 1); }
PENSTOCK_DEVICE bool LaneWorks(int s) { return IndexOfSlot(s) < kBlocks * kRows; }
PENSTOCK_DEVICE bool WarpWorks(int s) { return (int)threadIdx.x / 32 * 4 * kSlots + s < kBlocks * kRows; }
PENSTOCK_DEVICE Place PlaceOfSlot(const DenseRows& rows, const Team& team, int s) {
  return Place::of(rows, team.slice, RowOfSlot(s), team.first_block() + IndexOfSlot(s) % kBlocks, LaneWorks(s));
}
#else
/// Returns the block, the row and the lane's unit of a slot of a thread.
PENSTOCK_DEVICE Place PlaceOfSlot(const DenseRows& rows, const Team& team, int s) {
  const int index = ((int)threadIdx.x / 32 + kWarps * s) * 4 + (int)threadIdx.x % 32 / 8, block = index / kRows;
  return Place::of(rows, team.slice, index % kRows, team.first_block() + block, block < kBlocks);
}
/// A warp whose lanes have no block in a slot has nothing to do there.
PENSTOCK_DEVICE bool WarpWorks(int s) { return ((int)threadIdx.x / 32 + kWarps * s) * 4 < kBlocks * kRows; }
PENSTOCK_DEVICE bool LaneWorks(int s) {
  return ((int)threadIdx.x / 32 + kWarps * s) * 4 + (int)threadIdx.x % 32 / 8 < kBlocks * kRows;
}
#endif
