// Means over the units of a head in passes over a cluster: a CTA joins its parts of a row and sends the sums to all
// CTAs, which join those of all. An exchange has one buffer and one barrier of its own. A CTA sends its sums of the
// next step only when it has received something from all warps of all CTAs that they send after they have read this
// step's (h, or terms of its gradient). What a CTA joins lies in one place for all exchanges: who has the means of an
// exchange knows that the CTA's own sums of all rows were sent, and therefore that its parts had been read.
//
// Needs cluster.cuh and the slots of the pass, kSlots.

constexpr int kValues = kSlots;
#include "backend/cuda/kernels/dense/means.cuh"

/// Slots of a thread that are of one part, and parts of a thread.
constexpr int kPartSlots = kShape.part_slots(kBackward), kOwnParts = kSlots / kPartSlots;
constexpr int kPartUnits = 8 * kPartSlots;
/// Parts of a row that the CTA joins, and that it receives.
constexpr int kJoinedParts = kShape.joined_parts(kBackward), kPartsOfRow = kShape.parts_of_row(kBackward);
/// Warps of a group, or of all, that have slots.
constexpr int kPairs8 = (kBackward ? kBlocks : kBlocks / kGroups) * kRows;
constexpr int kMeanWarps = (kPairs8 + 4 * kSlots - 1) / (4 * kSlots) * (kBackward ? 1 : kGroups);
/// All units of all blocks exist.
constexpr bool kFullHead = kHead == kCluster * kBlocks * 8;
static_assert(kSlots % kPartSlots == 0);
/// Lanes that write means: all lanes of the first block have a unit, or only the first one is sure to.
constexpr int kKeepers = kHead >= 8 ? 8 : 1;

/// Place of a slot: whether it exists, its row of the cluster, its block of the head.
struct Indexed {
  bool inside;
  int row, block;
};

struct ClusterMeans {
  const Slot (&slots)[kSlots];
  char* shared;
  unsigned base;                // its address
  int barriers, buffers, rank;  // bytes from there; of the CTA
  int first_row;                // that these 8 lanes join
  int row[kOwnParts] = {};      // of this thread's parts: of the cluster
  int part[kOwnParts] = {};     // the number among the parts of the row, or the CTA's
  bool inside[kOwnParts] = {};  // whether they exist
  int round = 0;                // of the exchanges
  KeptMeans<kKeepers> kept[kOwnParts];

  /// find(slot) returns its place. `warp`: the number among the warps with slots.
  template <class Find>
  __device__ __forceinline__ void find_parts(int warp, const Find& find) {
    first_row = Held(warp * 4 + (int)threadIdx.x % 32 / 8);
#pragma unroll
    for (int p = 0; p < kOwnParts; ++p) {
      const Indexed first = find(p * kPartSlots);
      inside[p] = first.inside;
      row[p] = Held(first.row),
      part[p] = Held(first.inside ? (first.block - (kJoinedParts > 1 ? rank * kBlocks : 0)) / kPartSlots : 0);
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

  template <int kExchange, int M, bool kProducts = false, int N, int K>
  __device__ __forceinline__ void average(Values (&x)[N], Values (&square)[K]) {
    using Part = PartOfUnits<M, N>;
    using Share = typename Part::Share;
    constexpr int expected = bytes(kExchange), pitch = kShape.mean_pitch(kBackward, Part::pieces) * 16;
    const int lane = (int)threadIdx.x % 8;
    CopyBarrier& barrier = ((CopyBarrier*)(shared + barriers))[kExchange];
#pragma unroll
    for (int p = 0; p < kOwnParts; ++p) {
      const Share own = Part::of(x, p * kPartSlots, kPartSlots, [&](int i) {
                          return kFullHead || slots[i].place.unit < kHead;
                        }).template join_shares<1, 8, kFullHead>();
      if constexpr (kJoinedParts > 1) {
        char* const to = joined<Part>(row[p]) + part[p] * (Part::pieces * 16);
#pragma unroll
        for (int q = 0; q < Share::pieces && lane < Part::shares; ++q) {
          if (inside[p]) *(uint4*)(to + q * 16) = own.piece(q);
        }
      } else {
        send<kExchange, Part>(own, row[p], part[p], inside[p]);
      }
    }
    if constexpr (kJoinedParts > 1) {
      asm volatile("bar.sync %0, %1;" ::"n"(1 + kGroups), "n"(32 * kMeanWarps) : "memory");
#pragma unroll
      for (int i = 0; i < kRows; i += 4 * kMeanWarps) {
        if (first_row / 4 * 4 + i >= kRows) continue;  // all lanes of the warp
        const int of_row = min(first_row + i, kRows - 1);
        const Share own = gather<Part, kJoinedParts, kPartUnits>(joined<Part>(of_row), rank * kJoinedParts);
        send<kExchange, Part>(own, of_row, rank, first_row + i < kRows);
      }
    }
    if (kExchanges) {
      barrier.wait(round & 1);
      if (threadIdx.x == 0) barrier.expect(expected);
    }
#pragma unroll
    for (int p = 0; p < kOwnParts; ++p) {
      const char* const from = shared + buffers + buffer_at(kExchange) + row[p] * pitch;
      const Part all = Part::template of_shares<1>(
          gather<Part, kPartsOfRow, kJoinedParts * kPartUnits>(from + lane % Part::shares * (Share::pieces * 16), 0));
      all.put(x, square, p * kPartSlots, kPartSlots);
      if (!kBackward) kept[p].template take<kExchange>(all, lane);
    }
  }

 private:
  /// Returns where this lane's share of the CTA's parts of a row lies.
  template <class Part>
  __device__ __forceinline__ char* joined(int of_row) const {
    constexpr int at = buffer_at(MeanExchanges::of.count);
    return shared + buffers + at + of_row * (kJoinedParts * Part::pieces * 16) +
           (int)threadIdx.x % Part::shares * (Part::Share::pieces * 16);
  }

  /// Sends part `number` of a row to all CTAs; 8 lanes have shares of it.
  template <int kExchange, class Part>
  __device__ __forceinline__ void send(const typename Part::Share& own, int of_row, int number, bool exists) const {
    constexpr int pitch = kShape.mean_pitch(kBackward, Part::pieces) * 16, alike = 8 / Part::shares;
    const int lane = (int)threadIdx.x % 8, share = lane % Part::shares * (Part::Share::pieces * 16);
    const int at = buffers + buffer_at(kExchange) + of_row * pitch + number * (Part::pieces * 16) + share;
#pragma unroll
    for (int first = 0; first < kCluster; first += alike) {
      const int to = first + lane / Part::shares;
      if (!kExchanges || !exists || (kCluster % alike != 0 && to >= kCluster)) continue;
      const unsigned there = InBlock(base, to);
#pragma unroll
      for (int q = 0; q < Part::Share::pieces; ++q) {
        StoreRemote(there + at + q * 16, own.piece(q), there + barriers + kExchange * 8);
      }
    }
  }

  /// Joins `kCount` parts of `kUnits` units each: 8 lanes get their shares. `number`: of the first part.
  template <class Part, int kCount, int kUnits>
  __device__ __forceinline__ typename Part::Share gather(const char* from, int number) const {
    using Share = typename Part::Share;
    constexpr int alike = 8 / Part::shares, rounds = (kCount + alike - 1) / alike;
    const int first = (int)threadIdx.x % 8 / Part::shares;
    Share all[rounds];
#pragma unroll
    for (int i = 0; i < rounds; ++i) {
      const int of = i * alike + first;
      all[i] = Share::none();
      if (kCount % alike != 0 && of >= kCount) continue;
      all[i].count = kFullHead ? (float)kUnits : (float)UnitsInHead((number + of) * kUnits, kUnits);
#pragma unroll
      for (int q = 0; q < Share::pieces; ++q)
        all[i].set_piece(q, *(const uint4*)(from + of * (Part::pieces * 16) + q * 16));
    }
    JoinAll<kFullHead && kCount % alike == 0>(all);
    all[0].template join_lanes<Part::shares, 8, kFullHead && kCount % alike == 0>();
    return all[0];
  }

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
