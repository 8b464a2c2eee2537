// Means over the units of a head in passes over a cluster: each part of a row goes to all CTAs, which join all parts.
// An exchange has one buffer and one barrier of its own. A CTA sends its parts of the next step only when it has
// received something from all warps of all CTAs that they send after they have read this step's (h, or terms of its
// gradient).
//
// Needs cluster.cuh and the slots of the pass, kSlots.

constexpr int kValues = kSlots;
#include "backend/cuda/kernels/dense/means.cuh"

/// Slots of a thread that are of one part, and parts of a thread.
constexpr int kPartSlots = kShape.part_slots(kBackward), kOwnParts = kSlots / kPartSlots;
constexpr int kPartsOfRow = kShape.parts_of_row(kBackward), kPartUnits = 8 * kPartSlots;
/// All units of all blocks exist.
constexpr bool kFullHead = kHead == kCluster * kBlocks * 8;
static_assert(kSlots % kPartSlots == 0);

/// Place of a slot: whether it exists, its row of the cluster, its block of the head.
struct Indexed {
  bool inside;
  int row, block;
};

struct ClusterMeans {
  const Slot (&slots)[kSlots];
  char* shared;
  unsigned base;          // its address
  int barriers, buffers;  // bytes from there
  // This thread's parts: the row of the cluster, the number among the parts of the row, and whether they exist.
  int row[kOwnParts] = {}, part[kOwnParts] = {};
  bool inside[kOwnParts] = {};
  int round = 0;               // of the exchanges
  char* tape[kOwnParts] = {};  // of each part's row and step; null: this thread writes no means

  /// find(slot) returns its place.
  template <class Find>
  __device__ __forceinline__ void find_parts(const Find& find) {
#pragma unroll
    for (int p = 0; p < kOwnParts; ++p) {
      const Indexed first = find(p * kPartSlots);
      row[p] = Held(first.row), part[p] = Held(first.inside ? first.block / kPartSlots : 0), inside[p] = first.inside;
    }
  }
  PENSTOCK_DEVICE constexpr int bytes(int exchange) {
    return kRows * kPartsOfRow * MeanExchanges::pieces(exchange) * 16;
  }
  PENSTOCK_DEVICE constexpr int buffer_at(int exchange) {
    int at = 0;
    for (int i = 0; i < exchange; ++i) at += kRows * kShape.mean_pitch(kBackward, MeanExchanges::pieces(i)) * 16;
    return at;
  }
  /// By one thread, before the CTAs meet.
  PENSTOCK_DEVICE void init(CopyBarrier* barriers) { AnnounceAll<0>(barriers); }

  template <int kExchange, int M, int N, int K>
  __device__ __forceinline__ void average(Values (&x)[N], Values (&square)[K]) {
    using Part = PartOfUnits<M, N>;
    using Share = typename Part::Share;
    constexpr int pitch = kShape.mean_pitch(kBackward, Part::pieces) * 16;
    constexpr int expected = bytes(kExchange), before = buffer_at(kExchange);
    // Of the 8 lanes of a part, `alike` have the same share.
    constexpr int shares = Part::shares, alike = 8 / shares, share_bytes = Share::pieces * 16;
    const int lane = (int)threadIdx.x % 8, buffer = buffers + before + lane % shares * share_bytes;
    CopyBarrier& barrier = ((CopyBarrier*)(shared + barriers))[kExchange];
#pragma unroll
    for (int p = 0; p < kOwnParts; ++p) {
      const Share own = Part::of(x, p * kPartSlots, kPartSlots, [&](int i) {
                          return kFullHead || slots[i].place.unit < kHead;
                        }).template join_shares<1, 8, kFullHead>();
      const int at = buffer + row[p] * pitch + part[p] * (shares * share_bytes);
#pragma unroll
      for (int first = 0; first < kCluster; first += alike) {
        const int to = first + lane / shares;
        if (!kExchanges || !inside[p] || (kCluster % alike != 0 && to >= kCluster)) continue;
        const unsigned there = InBlock(base, to);
#pragma unroll
        for (int q = 0; q < Share::pieces; ++q) {
          StoreRemote(there + at + q * 16, own.piece(q), there + barriers + kExchange * 8);
        }
      }
    }
    if (kExchanges) {
      barrier.wait(round & 1);
      if (threadIdx.x == 0) barrier.expect(expected);
    }
#pragma unroll
    for (int p = 0; p < kOwnParts; ++p) {
      Share share = Share::none();
      const char* const from = shared + buffer + row[p] * pitch;
#pragma unroll
      for (int first = 0; first < kPartsOfRow; first += alike) {
        const int number = first + lane / shares;
        if (kPartsOfRow % alike != 0 && number >= kPartsOfRow) continue;
        Share other;
        other.count = kFullHead ? (float)kPartUnits : (float)UnitsInHead(number * kPartUnits, kPartUnits);
#pragma unroll
        for (int q = 0; q < Share::pieces; ++q) {
          other.set_piece(q, *(const uint4*)(from + number * (shares * share_bytes) + q * 16));
        }
        if (first == 0) {
          share = other;
        } else {
          share.join(other);
        }
      }
      share.template join_lanes<shares, 8, kFullHead && kPartsOfRow % alike == 0>();
      const Part all = Part::template of_shares<1>(share);
      all.put(x, square, p * kPartSlots, kPartSlots);
      if (kBackward || tape[p] == nullptr) continue;
      // All lanes of the first block have a unit, or only the first one is sure to.
      all.template keep<kExchange>(tape[p], [&](int i) { return (kHead >= 8 ? i % 8 : 0) == lane; });
    }
  }

 private:
  template <int kExchange>
  PENSTOCK_DEVICE void AnnounceAll(CopyBarrier* barriers) {
    if constexpr (kExchange < MeanExchanges::of.count) {
      constexpr int expected = bytes(kExchange);
      barriers[kExchange].init(1);
      barriers[kExchange].expect(expected);
      AnnounceAll<kExchange + 1>(barriers);
    }
  }
};
