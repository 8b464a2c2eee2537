// Means over the units of a head in passes over many clusters. The CTAs of a cluster send the parts of a row to the CTA
// that joins them, which sends the part of the cluster to all CTAs of the team through the second-level cache, as
// pieces that are their own flags (chip_exchange.cuh). They lie in the buffer of the step's own exchange, and are
// cleared with it: whoever has all sums of a step knows that all CTAs have read the means of the step before. Without
// clusters, the parts of a CTA go to the team at once.
//
// Needs chip.cuh and the slots of the pass.

constexpr int kValues = kSlots;
#include "backend/cuda/kernels/dense/means.cuh"

constexpr int kPartSlots = kChip.chip_part_slots(), kOwnParts = kSlots / kPartSlots, kPartUnits = 8 * kPartSlots;
/// Parts of a row in a cluster, and those that all CTAs of the team join.
constexpr int kPartsOfCluster = kChip.parts_of_cluster(), kPublished = kChip.published_parts();
constexpr int kPublishedUnits = kCluster > 1 ? kPartsOfCluster* kPartUnits : kPartUnits;
constexpr bool kFullHead = kHead == kChip.blocks_of_team() * 8;
static_assert(kSlots % kPartSlots == 0);

struct ChipMeans {
  static constexpr int joiners = 8;  // lanes that join the parts of a row
  static constexpr int working = (kBlocks * kRows + 4 * kSlots - 1) / (4 * kSlots);  // warps with slots
  static constexpr int rows_of_rank = kChip.rows_of_rank();                          // at most
  const Slot (&slots)[kSlots];
  const Exchange& exchange;
  const Team& team;
  char* shared;
  unsigned base;                                  // its address
  int barriers, buffers;                          // bytes from there
  int round = 0;                                  // of the exchanges
  int number = 0;                                 // of the step's own exchange
  int row[kOwnParts] = {}, part[kOwnParts] = {};  // of the team, and of the row in the cluster
  bool inside[kOwnParts] = {};
  char* tape[kOwnParts] = {};  // of each part's row and step; null: this thread writes no means

  __device__ __forceinline__ void find_parts() {
#pragma unroll
    for (int p = 0; p < kOwnParts; ++p) {
      inside[p] = LaneWorks(p * kPartSlots);
      row[p] = Held(RowOfSlot(p * kPartSlots));
      const int first = team.cluster * kChip.blocks_of_cluster();
      part[p] = Held(inside[p] ? (slots[p * kPartSlots].place.block - first) / kPartSlots : 0);
    }
  }

  PENSTOCK_DEVICE constexpr int pitch(int exchange) {
    return (kPartsOfCluster * MeanExchanges::pieces(exchange) | 1) * 16;
  }
  PENSTOCK_DEVICE constexpr int buffer_at(int exchange) {
    int at = 0;
    for (int i = 0; i < exchange; ++i) at += rows_of_rank * pitch(i);
    return at;
  }
  /// Returns the bytes that a CTA receives of its cluster.
  template <int kExchange>
  PENSTOCK_DEVICE int expected(int rank) {
    constexpr int of_row = kPartsOfCluster * MeanExchanges::pieces(kExchange) * 16;
    return (kRows - rank + kCluster - 1) / kCluster * of_row;
  }
  /// By one thread, before the CTAs meet.
  template <int kExchange>
  PENSTOCK_DEVICE void init(CopyBarrier* barriers, int rank) {
    if constexpr (kCluster > 1 && kExchange < MeanExchanges::of.count) {
      barriers[kExchange].init(1);
      if (rank < kRows) barriers[kExchange].expect(expected<kExchange>(rank));
      init<kExchange + 1>(barriers, rank);
    }
  }

  /// Returns the address of the pieces of a published part.
  template <int kExchange>
  __device__ __forceinline__ char* published(int of_row, int of_part) const {
    constexpr int before = MeanExchanges::pieces_before(kExchange) * kRows * kPublished;
    constexpr int pieces = MeanExchanges::pieces(kExchange);
    return exchange.buffer(number) + Exchange::own_bytes + (before + (of_row * kPublished + of_part) * pieces) * 16;
  }
  template <int kExchange, int M, int N>
  __device__ __forceinline__ void publish(const PartOfUnits<M, N>& of, int of_row, int of_part) const {
    const auto sendable = [](unsigned word) { return word == kAbsent ? 0x7fffffffu : word; };
    char* const to = published<kExchange>(of_row, of_part);
#pragma unroll
    for (int q = 0; q < PartOfUnits<M, N>::pieces; ++q) {
      const uint4 v = of.piece(q);
      if ((int)threadIdx.x % 8 != q) continue;
      WriteShared(to + q * 16, make_uint4(sendable(v.x), sendable(v.y), sendable(v.z), sendable(v.w)));
    }
  }

  template <int kExchange, int M, int N, int K>
  __device__ __forceinline__ void average(Values (&x)[N], Values (&square)[K]) {
    using Part = PartOfUnits<M, N>;
    static_assert(Part::pieces <= 8);
    const int lane = (int)threadIdx.x % 8;
#pragma unroll
    for (int p = 0; p < kOwnParts; ++p) {
      Part own =
          Part::of(x, p * kPartSlots, kPartSlots, [&](int i) { return kFullHead || slots[i].place.unit < kHead; });
      own.template join_lanes<1, 8, kFullHead>();
      if (!kExchanges || !inside[p]) continue;
      if constexpr (kCluster > 1) {
        send<kExchange>(own, p);
      } else {
        publish<kExchange>(own, row[p], slots[p * kPartSlots].place.block / kPartSlots);
      }
    }
    if constexpr (kCluster > 1) join_cluster<kExchange, M, N>();
#pragma unroll
    for (int p = 0; p < kOwnParts; ++p) {
      Part all = Part::none();
      if (kExchanges) all = gather<kExchange, M, N>(row[p]);
      all.template join_lanes<1, joiners, kFullHead && kPublished % joiners == 0>();
      all.put(x, square, p * kPartSlots, kPartSlots);
      if (kBackward || tape[p] == nullptr) continue;
      // All lanes of the first block have a unit, or only the first one is sure to.
      all.template keep<kExchange>(tape[p], [&](int i) { return (kHead >= 8 ? i % 8 : 0) == lane; });
    }
  }

  /// Clears what this CTA has published in the buffer that exchange.clear(number, ...) clears.
  __device__ __forceinline__ void clear() const { clear_from<0>(); }

 private:
  /// Stores a part in the shared memory of the CTA that joins the row.
  template <int kExchange, int M, int N>
  __device__ __forceinline__ void send(const PartOfUnits<M, N>& own, int p) const {
    constexpr int before = buffer_at(kExchange), of_row = pitch(kExchange), pieces = PartOfUnits<M, N>::pieces;
    const unsigned there = InBlock(base, row[p] % kCluster);
    const int at = buffers + before + row[p] / kCluster * of_row + part[p] * (pieces * 16);
#pragma unroll
    for (int q = 0; q < pieces; ++q) {
      const uint4 v = own.piece(q);
      if ((int)threadIdx.x % 8 == q) StoreRemote(there + at + q * 16, v, there + barriers + kExchange * 8);
    }
  }

  /// Joins the rows of this CTA over the cluster and publishes them: 8 lanes a row.
  template <int kExchange, int M, int N>
  __device__ __forceinline__ void join_cluster() {
    using Part = PartOfUnits<M, N>;
    constexpr int before = buffer_at(kExchange), of_row = pitch(kExchange);
    const int lane = (int)threadIdx.x % 8, warp = (int)threadIdx.x / 32;
    CopyBarrier& barrier = ((CopyBarrier*)(shared + barriers))[kExchange];
#pragma unroll
    for (int first = 0; first < rows_of_rank; first += 4 * working) {
      if (first + warp * 4 >= rows_of_rank || team.rank >= kRows || !kExchanges) continue;
      const int own = first + (int)threadIdx.x / 8, of_team = own * kCluster + team.rank;
      if (first == 0) {
        barrier.wait(round & 1);
        if (threadIdx.x == 0) barrier.expect(expected<kExchange>(team.rank));
      }
      Part all = Part::none();
      const char* const from = shared + buffers + before + min(own, rows_of_rank - 1) * of_row;
#pragma unroll
      for (int i = 0; i < kPartsOfCluster; i += joiners) {
        if (kPartsOfCluster % joiners != 0 && i + lane >= kPartsOfCluster) continue;
        Part other;
        const int unit = (team.cluster * kPartsOfCluster + i + lane) * kPartUnits;
        other.count = kFullHead ? (float)kPartUnits : (float)UnitsInHead(unit, kPartUnits);
#pragma unroll
        for (int q = 0; q < Part::pieces; ++q)
          other.set_piece(q, *(const uint4*)(from + ((i + lane) * Part::pieces + q) * 16));
        if (i == 0) {
          all = other;
        } else {
          all.join(other);
        }
      }
      all.template join_lanes<1, joiners, kFullHead && kPartsOfCluster % joiners == 0>();
      if (own < rows_of_rank && of_team < kRows) publish<kExchange>(all, of_team, team.cluster);
    }
  }

  /// This lane's share of the published parts of a row.
  template <int kExchange, int M, int N>
  __device__ __forceinline__ PartOfUnits<M, N> gather(int of_row) const {
    using Part = PartOfUnits<M, N>;
    constexpr int rounds = (kPublished + joiners - 1) / joiners, at_once = rounds < 4 ? rounds : 4;
    const int lane = (int)threadIdx.x % 8;
    Part all = Part::none();
#pragma unroll
    for (int first = 0; first < rounds; first += at_once) {
      uint4 v[at_once][Part::pieces];
      const auto exists = [&](int i) { return (first + i) * joiners + lane < kPublished; };
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
#pragma unroll
        for (int q = 0; q < Part::pieces; ++q) v[i][q] = make_uint4(kAbsent, 0, 0, 0);
      }
      bool absent = true;
      int tries = 0;
#pragma unroll 1
      while (absent) {
        // All that is still absent at once.
#pragma unroll
        for (int i = 0; i < at_once; ++i) {
#pragma unroll
          for (int q = 0; q < Part::pieces; ++q) {
            if (!exists(i) || !IsAbsent(v[i][q])) continue;
            v[i][q] = ReadShared(published<kExchange>(of_row, (first + i) * joiners + lane) + q * 16);
          }
        }
        absent = false;
#pragma unroll
        for (int i = 0; i < at_once; ++i) {
#pragma unroll
          for (int q = 0; q < Part::pieces; ++q) absent |= exists(i) && IsAbsent(v[i][q]);
        }
        if (++tries == kMostTries) asm volatile("trap;");
      }
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        if (!exists(i)) continue;
        Part other;
        const int unit = ((first + i) * joiners + lane) * kPublishedUnits;
        other.count = kFullHead ? (float)kPublishedUnits : (float)UnitsInHead(unit, kPublishedUnits);
#pragma unroll
        for (int q = 0; q < Part::pieces; ++q) other.set_piece(q, v[i][q]);
        if (first + i == 0) {
          all = other;
        } else {
          all.join(other);
        }
      }
    }
    return all;
  }

  template <int kExchange>
  __device__ __forceinline__ void clear_from() const {
    if constexpr (kExchange < MeanExchanges::of.count) {
      ChipMeans of_before = *this;
      of_before.number = number - 2;
      const uint4 none = make_uint4(kAbsent, kAbsent, kAbsent, kAbsent);
      constexpr int pieces = MeanExchanges::pieces(kExchange);
      const int lane = (int)threadIdx.x % 8;
      if constexpr (kCluster > 1) {
#pragma unroll
        for (int first = 0; first < rows_of_rank; first += 4 * working) {
          const int of_team = (first + (int)threadIdx.x / 8) * kCluster + team.rank;
          if (lane < pieces && of_team < kRows) {
            WriteShared(of_before.published<kExchange>(of_team, team.cluster) + lane * 16, none);
          }
        }
      } else {
#pragma unroll
        for (int p = 0; p < kOwnParts; ++p) {
          const int of_row = slots[p * kPartSlots].place.block / kPartSlots;
          if (lane < pieces && inside[p]) WriteShared(of_before.published<kExchange>(row[p], of_row) + lane * 16, none);
        }
      }
      clear_from<kExchange + 1>();
    }
  }
};
