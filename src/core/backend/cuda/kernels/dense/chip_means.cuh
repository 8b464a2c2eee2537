// Means over the units of a head in passes over many CTAs, which exchange parts of a row through the second-level
// cache, as pieces that are their own flags (chip_exchange.cuh). All CTAs join the parts of their rows. Where these are
// many, one CTA of the team joins each row and publishes the whole. Pieces lie in the buffer of the step's own
// exchange, and are cleared with it: whoever has all sums of a step knows that all CTAs have read the means of the step
// before.
//
// Needs chip.cuh and the slots of the pass.

constexpr int kValues = kSlots;
#include "backend/cuda/kernels/dense/means.cuh"

constexpr int kPartSlots = kChip.chip_part_slots(), kOwnParts = kSlots / kPartSlots;
constexpr int kPartUnits = kChip.part_blocks() * 8, kPartsOfRow = kChip.parts_of_team();
/// Lanes of a part.
constexpr int kPartLanes = kPartUnits / kPartSlots;
constexpr bool kFullHead = kHead == kChip.blocks_of_team() * 8;
static_assert(kSlots % kPartSlots == 0);
/// Lanes that write means: all lanes of the first block have a unit, or only the first one is sure to.
constexpr int kKeepers = kHead >= 8 ? 8 : 1;

struct ChipMeans {
  static constexpr int working = (kBlocks * kRows + 4 * kSlots - 1) / (4 * kSlots);                 // warps with slots
  static constexpr int team_size = kClusters * kCluster;                                            // CTAs
  static constexpr int joined_rows = kChip.joins_rows() ? (kRows + team_size - 1) / team_size : 0;  // of a CTA, at most
  const Slot (&slots)[kSlots];
  const Exchange& exchange;
  const int rank;                                 // of the CTA in the team
  int number = 0;                                 // of the step's own exchange
  int row[kOwnParts] = {}, part[kOwnParts] = {};  // of the team, and of the row
  bool inside[kOwnParts] = {};
  KeptMeans<kKeepers> kept[kOwnParts];

  __device__ __forceinline__ void find_parts() {
#pragma unroll
    for (int p = 0; p < kOwnParts; ++p) {
      inside[p] = LaneWorks(p * kPartSlots);
      row[p] = Held(RowOfSlot(p * kPartSlots));
      part[p] = Held(inside[p] ? slots[p * kPartSlots].place.block / kChip.part_blocks() : 0);
    }
  }

  template <int kExchange, int M, bool kProducts = false, int N, int K>
  __device__ __forceinline__ void average(Values (&x)[N], Values (&square)[K]) {
    using Part = PartOfUnits<M, N>;
    static_assert(Part::pieces <= 8);
#pragma unroll
    for (int p = 0; p < kOwnParts; ++p) {
      const auto exists = [&](int i) { return kFullHead || slots[i].place.unit < kHead; };
      const auto own = Part::of(x, p * kPartSlots, kPartSlots, exists).template join_shares<1, kPartLanes, kFullHead>();
      if (kExchanges && inside[p]) publish<kExchange, kPartLanes, Part>(own, row[p], part[p]);
    }
    for_joined_rows([&](int of_row) {
      const auto whole = gather<kExchange, 32, kPartsOfRow, Part>(of_row, 0);
      publish<kExchange, 32, Part>(whole, of_row, kPartsOfRow);
    });
#pragma unroll
    for (int p = 0; p < kOwnParts; ++p) {
      Part all = Part::none();
      if constexpr (joined_rows > 0) {
        if (kExchanges)
          all = Part::template of_shares<1>(gather<kExchange, Part::shares, 1, Part>(row[p], kPartsOfRow));
      } else {
        if (kExchanges) all = Part::template of_shares<1>(gather<kExchange, kPartLanes, kPartsOfRow, Part>(row[p], 0));
      }
      all.put(x, square, p * kPartSlots, kPartSlots);
      if (!kBackward) kept[p].template take<kExchange>(all, (int)threadIdx.x % 8);
    }
  }

  /// Clears what this CTA has published in the buffer that exchange.clear(number, ...) clears.
  __device__ __forceinline__ void clear() const { clear_from<0>(); }

 private:
  /// Visits the rows that this warp joins, with all of its lanes.
  template <class Visit>
  __device__ __forceinline__ void for_joined_rows(const Visit& visit) const {
#pragma unroll
    for (int first = 0; first < joined_rows; first += working) {
      const int of_cta = first + (int)threadIdx.x / 32, of_team = of_cta * team_size + rank;
      if (kExchanges && of_cta < joined_rows && of_team < kRows) visit(of_team);
    }
  }

  /// Returns the address of the pieces of a part; behind the last one is the whole row.
  template <int kExchange>
  __device__ __forceinline__ char* published(int of_row, int of_part) const {
    constexpr int parts = kChip.published_parts(), before = MeanExchanges::pieces_before(kExchange) * kRows * parts;
    constexpr int pieces = MeanExchanges::pieces(kExchange);
    return exchange.buffer(number) + Exchange::own_bytes + (before + (of_row * parts + of_part) * pieces) * 16;
  }

  /// Publishes a part, of which `kLanes` lanes have shares.
  template <int kExchange, int kLanes, class Part>
  __device__ __forceinline__ void publish(const typename Part::Share& share, int of_row, int of_part) const {
    const auto sendable = [](unsigned word) { return word == kAbsent ? 0x7fffffffu : word; };
    const int lane = (int)threadIdx.x % kLanes, first = lane % Part::shares * Part::Share::pieces;
    char* const to = published<kExchange>(of_row, of_part) + first * 16;
#pragma unroll
    for (int q = 0; q < Part::Share::pieces; ++q) {
      const uint4 v = share.piece(q);
      if (lane / Part::shares != q) continue;
      WriteShared(to + q * 16, make_uint4(sendable(v.x), sendable(v.y), sendable(v.z), sendable(v.w)));
    }
  }

  /// Waits for `kCount` parts of a row from `from` on, and joins them: each of `kLanes` lanes gets its share.
  template <int kExchange, int kLanes, int kCount, class Part>
  __device__ __forceinline__ typename Part::Share gather(int of_row, int from) const {
    using Share = typename Part::Share;
    constexpr int shares = Part::shares, alike = kLanes / shares, pieces = Share::pieces;
    constexpr int rounds = (kCount + alike - 1) / alike, most = pieces < 8 ? 8 / pieces : 1;
    constexpr int at_once = rounds < most ? rounds : most;
    const int lane = (int)threadIdx.x % kLanes;
    const auto place = [&](int i) { return i * alike + lane / shares; };
    const auto exists = [&](int i) { return i < rounds && (kCount % alike == 0 || place(i) < kCount); };
    const char* const first_piece = published<kExchange>(of_row, from) + lane % shares * pieces * 16;
    Share all = Share::none();
#pragma unroll
    for (int first = 0; first < rounds; first += at_once) {
      uint4 v[at_once][pieces];
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
#pragma unroll
        for (int q = 0; q < pieces; ++q) v[i][q] = make_uint4(kAbsent, 0, 0, 0);
      }
      bool absent = true;
      int tries = 0;
#pragma unroll 1
      while (absent) {
        // All that is still absent at once.
#pragma unroll
        for (int i = 0; i < at_once; ++i) {
#pragma unroll
          for (int q = 0; q < pieces; ++q) {
            if (!exists(first + i) || !IsAbsent(v[i][q])) continue;
            v[i][q] = ReadShared(first_piece + (place(first + i) * Part::pieces + q) * 16);
          }
        }
        absent = false;
#pragma unroll
        for (int i = 0; i < at_once; ++i) {
#pragma unroll
          for (int q = 0; q < pieces; ++q) absent |= exists(first + i) && IsAbsent(v[i][q]);
        }
        if (++tries == kMostTries) asm volatile("trap;");
      }
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        if (!exists(first + i)) continue;
        Share other;
        const int units = kCount == 1 ? kHead : UnitsInHead(place(first + i) * kPartUnits, kPartUnits);
        other.count = kFullHead && kCount > 1 ? (float)kPartUnits : (float)units;
#pragma unroll
        for (int q = 0; q < pieces; ++q) other.set_piece(q, v[i][q]);
        if (first + i == 0) {
          all = other;
        } else {
          all.join(other);
        }
      }
    }
    all.template join_lanes<shares, kLanes, kFullHead && kCount % alike == 0>();
    return all;
  }

  template <int kExchange>
  __device__ __forceinline__ void clear_from() const {
    if constexpr (kExchange < MeanExchanges::of.count) {
      ChipMeans of_before = *this;
      of_before.number = number - 2;
      constexpr int pieces = MeanExchanges::pieces(kExchange);
      const auto clear_part = [&](int of_row, int of_part, int lane) {
        const uint4 none = make_uint4(kAbsent, kAbsent, kAbsent, kAbsent);
        if (lane < pieces) WriteShared(of_before.published<kExchange>(of_row, of_part) + lane * 16, none);
      };
#pragma unroll
      for (int p = 0; p < kOwnParts; ++p) {
        if (inside[p]) clear_part(row[p], part[p], (int)threadIdx.x % kPartLanes);
      }
      for_joined_rows([&](int of_row) { clear_part(of_row, kPartsOfRow, (int)threadIdx.x % 32); });
      clear_from<kExchange + 1>();
    }
  }
};
