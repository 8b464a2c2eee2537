// Code of both passes of dense cells over large batches by warpgroups: the team of blocks that shares R
// (dense_warpgroup_shape.h), its exchange (warpgroup_exchange.cuh), and the products.
//
// kBackward: which pass it is. kAccess is at least 4.

#include "backend/cuda/kernels/dense/pass.h"
PENSTOCK_PASS(WarpgroupPass)

#include "backend/cuda/kernels/dense/cell.cuh"
#include "backend/cuda/kernels/dense/resets.cuh"
#include "backend/cuda/kernels/dense/sm90.cuh"
#include "backend/cuda/kernels/product/warpgroup.cuh"
#include "plan/kernels/dense_warpgroup_shape.h"

constexpr int kHead = kPass.held.head, kAccess = kPass.held.access, kSharedBytes = kPass.held.shared_bytes;
constexpr bool kTraining = kPass.held.training, kEveryState = kPass.held.every_state;
constexpr int kRows = kPass.rows, kPortions = kPass.portions, kResident = kPass.resident, kDepth = kPass.depth;
constexpr int kStages = kPass.stages, kShares = kPass.shares, kKept = kPass.kept, kStreamed = kPass.streamed,
              kTerms = kPass.terms;
constexpr int kGates = Rule::gates, kStates = Rule::states, kSaved = Rule::saved, kBytes = Storage::bytes;
/// Units of a team: those of a head, and after them others that no tensor has. Their states and gradients are 0.
constexpr int kUnitsOfTeam = WarpgroupShape::padded(kHead, kBackward, kGates);
constexpr bool kPads = kUnitsOfTeam != kHead;
constexpr WarpgroupShape kShape = {kBackward, kGates,    kStates,   DenseCell::split, kUnitsOfTeam,
                                   kRows,     kPortions, kResident, kDepth,           kStages,
                                   kShares,   kKept,     kStreamed, kBytes,           kTerms};
constexpr bool kWide = kShape.wide();
constexpr int kParts = WarpgroupShape::parts, kThreads = WarpgroupShape::threads, kUnits = kShape.own_units();
constexpr int kItems = kShape.items(), kOwnItems = kShape.own_items(), kItemBytes = kShape.item_bytes();
constexpr int kItemParts = kShape.item_parts(), kOwnRows = kShape.own_rows();
constexpr int kTiles = kShape.own_tiles(), kInputStages = kShape.input_stages();
constexpr int kLoaders = kShape.loaders(), kOwnSums = kShape.passed_values();
constexpr int kSteps = kShape.steps_of_item();
constexpr int kMatrixTerms = kShape.matrix_terms(), kSums = kShape.sums();
/// Registers of the threads that multiply, and of the others: as many as the launch gave them all.
constexpr bool kMoreRegisters = kShape.registers() > WarpgroupShape::usual_registers;
constexpr int kManyRegisters = kMoreRegisters ? 224 : 216, kFewRegisters = kMoreRegisters ? 56 : 72;
constexpr int kMostTries = 1 << 22;
static_assert((kBytes == 4 || kTerms == 1) && !DenseCell::two_phases && kGates <= 4 && kStages * kItemParts <= 32);
static_assert(kStages > 1 || kOwnItems == 1, "an item is released behind the next one's products");
/// Passes in which a warp brings a portion's items.
constexpr int kPasses = (kItems + 31) / 32;
static_assert(kShape.shared_bytes() == kSharedBytes && 8 * (kShape.barriers() + 2) <= kShape.ring_at());
static_assert(sizeof(Row) == WarpgroupShape::row_bytes);

#include "backend/cuda/kernels/dense/warpgroup_floats.cuh"

/// Returns whether a unit of a team is one of the head.
PENSTOCK_DEVICE bool IsOfHead(int unit) { return !kPads || unit < kHead; }

/// Moves 16 bytes of units, of `kUnitBytes` each, between shared and global memory. `left`: units of the head from a
/// place `offset` units before them on; those beyond have no memory.
template <int kUnitBytes, class Move>
PENSTOCK_DEVICE void ForAccesses(int offset, int left, const Move& move) {
  // Compared anew each time: predicates of all pieces of a step would take registers.
  if constexpr (kPads) asm volatile("" : "+r"(left));
#pragma unroll
  for (int at = 0; at < 16; at += kAccess) {
    if (!kPads || offset + at / kUnitBytes < left) move(at);
  }
}
template <int kUnitBytes>
PENSTOCK_DEVICE void FetchUnits(char* shared, const char* global, int offset, int left) {
  ForAccesses<kUnitBytes>(offset, left, [&](int at) { CopyAsync<kAccess>(shared + at, global + at, true); });
}
PENSTOCK_DEVICE void StoreUnits(char* global, const uint4& values, int offset, int left) {
  const unsigned word[4] = {values.x, values.y, values.z, values.w};
  ForAccesses<kBytes>(offset, left, [&](int at) {
    Vector<Storage, kAccess / kBytes> part;
#pragma unroll
    for (int i = 0; i < kAccess / 4; ++i) part.word[i] = word[at / 4 + i];
    part.store(global + at);
  });
}

/// Place of a block: its team and its place there, its head and the first of its rows.
struct Team {
  int number, member, head, first_row;

  PENSTOCK_DEVICE Team here(int first, int heads) {
    Team t;
    t.number = (int)blockIdx.x / kShape.blocks(), t.member = (int)blockIdx.x % kShape.blocks();
    t.head = (first + t.number) % heads, t.first_row = (first + t.number) / heads * kShape.team_rows();
    return t;
  }
  /// Returns the block's first channel, counted over all heads.
  __device__ __forceinline__ int channel() const { return head * kHead + first_unit(); }
  /// Returns the block's first unit, counted within the head. It and units after it may be beyond the head.
  __device__ __forceinline__ int first_unit() const { return kWide ? group() * kUnits : member * kUnits; }
  /// Returns the number of the head's units from the block's first one on.
  __device__ __forceinline__ int left() const { return kHead - first_unit(); }
  /// The group of blocks that have the same rows of the matrix, and the block's place there.
  __device__ __forceinline__ int group() const { return member / kShape.sharing(); }
  __device__ __forceinline__ int share() const { return member % kShape.sharing(); }
  /// Returns the first row of a portion to which the block applies the cell.
  __device__ __forceinline__ int own_row() const { return kWide ? share() * kOwnRows : 0; }
};

#include "backend/cuda/kernels/dense/warpgroup_exchange.cuh"

/// The last bit of all words of sums that are sent as `number`: whoever waits for them needs no other sign. A buffer is
/// used for every other number, and is zero at first.
PENSTOCK_DEVICE unsigned SignOf(int number) { return (number >> 1 & 1) ^ 1; }

/// A warpgroup's part of R, and its share of the sums.
struct Product {
  const Ring& ring;
  const MatrixRing& matrix;
  int part, warp, lane;
  unsigned held[kResident > 0 ? kResident : 1][kMatrixTerms][4];
  using Sums = float[kSums][kRows / 2];

  /// Fills the registers: word_of(k, i, term) makes word i of step k. Halves of floats pass through memory that is used
  /// once all warps are here: the assembler would keep the floats in registers until their first product.
  template <class WordOf>
  __device__ __forceinline__ void hold(const WordOf& word_of) {
    static_assert(kBytes == 2 || kShape.all_passed_bytes() >= kParts * kWarpgroup * 16);
    auto* const made = (volatile unsigned*)(ring.start + kShape.passed_at()) + ((part * 4 + warp) * 32 + lane) * 4;
#pragma unroll
    for (int k = 0; k < kResident; ++k) {
#pragma unroll
      for (int term = 0; term < kMatrixTerms; ++term) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const unsigned word = word_of(k, i, term);
          if constexpr (kBytes == 4) made[i] = word;
          held[k][term][i] = kBytes == 4 ? made[i] : word;
        }
      }
    }
  }

  /// The column of the block's where item `i` of a part begins.
  PENSTOCK_DEVICE int column_of(int part, int i) {
    return (kWide ? i : i * kParts + part) * kDepth * WarpgroupShape::chunk_units;
  }

  __device__ __forceinline__ int stage_of(unsigned number) const {
    return (kWide ? 0 : part * kStages) + number % kStages;
  }
  __device__ __forceinline__ int matrix_stage(unsigned number) const {
    return part * kMatrixStages + number % kMatrixStages;
  }
  __device__ __forceinline__ void release(unsigned number) const {
    if (warp == 0 && lane == 0) ring.empty[stage_of(number)].arrive();
  }

  /// Multiplies by an item, the i-th of a portion, as soon as it is there; the one before is then done with.
  /// product(k, sums, term of R, description of what was brought, whether there are sums to add to).
  template <class OneProduct>
  __device__ __forceinline__ void multiply_item(int i, unsigned number, const OneProduct& product) const {
    ring.full[stage_of(number)].wait(number / kStages & 1);
    const unsigned long long h = MatrixOfColumns().describe(ring.item(stage_of(number)), 0);
    BeginMultiplying();
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      const unsigned long long high = h + (k / 4 * kShape.chunk_bytes() + k % 4 * 32) / 16;
      const int add = i > 0 || k > 0;
      product(k, 0, 0, high, add);
      if constexpr (kTerms == 2) product(k, kSums - 1, 0, high + kShape.term_bytes() / 16, kSums == 1 ? 1 : add);
      if constexpr (kMatrixTerms == 2) product(k, 0, 1, high, 1);
    }
    CommitMultiplying();
    if (i > 0) {
      WaitForProducts<1>();
      release(number - 1);
    }
  }

  /// Multiplies by item `i` with R in shared memory.
  __device__ __forceinline__ void multiply_shared(Sums& sums, const char* of_item, int i, unsigned number) const {
    const unsigned long long r = MatrixOfColumns().describe(of_item, 0);
    multiply_item(i, number, [&](int k, int which, int term, unsigned long long h, int add) {
      const int at = term * kShape.matrix_term_bytes() + k / 4 * WarpgroupShape::matrix_chunk_bytes + k % 4 * 32;
      MultiplyShared(sums[which], r + at / 16, h, add);
    });
  }
  /// Multiplies by the next item of R that is streamed, `streamed` of all turns.
  __device__ __forceinline__ void multiply_streamed(Sums& sums, int i, unsigned number, unsigned streamed) const {
    const int stage = matrix_stage(streamed);
    matrix.full[stage].wait(streamed / kMatrixStages & 1);
    multiply_shared(sums, matrix.item(stage), i, number);
  }
  /// Streamed items before number `end` have been multiplied by; those before `done` were released.
  __device__ __forceinline__ void release_streamed(unsigned& done, unsigned end) const {
    for (; done < end; ++done) {
      if (lane == 0) matrix.empty[matrix_stage(done)].arrive();
    }
  }

  /// The sums of a portion.
  __device__ __forceinline__ void multiply(float (&sum)[kRows / 2], int turn) const {
    Sums sums;
    multiply_all(sums, turn);
    const float unscaled = kBytes == 4 ? ScalesOfMatrix(ring.start)[1] : 1.0f;
    const float of_gradients = kSums == 2 ? ScalesOfGradients(ring.start)[1] : 1.0f;
#pragma unroll
    for (int i = 0; i < kRows / 2; ++i) {
      sum[i] = sums[0][i];
      if constexpr (kSums == 2) sum[i] = sum[i] * (1.0f / kLargeScale) + sums[1][i] * (1.0f / kSmallScale);
      if constexpr (kBytes == 4) sum[i] *= unscaled;
      if constexpr (kSums == 2) sum[i] *= of_gradients;
    }
  }
  __device__ __forceinline__ void multiply_all(Sums& sums, int turn) const {
    const unsigned first = (unsigned)turn * kOwnItems;
    // The next streamed item, and the first that has not been released. Whoever has issued an item's products knows
    // that those of the items before it are done.
    unsigned streamed = (unsigned)turn * kStreamed, done = streamed;
    constexpr int held_items = kShape.resident_items(), with_held = kShape.streamed_with_held();
#pragma unroll
    for (int j = 0; j < held_items; ++j) {
      const int i = kShape.held_place(j);
      multiply_item(i, first + i, [&](int k, int which, int term, unsigned long long h, int add) {
        MultiplyHeld(sums[which], held[j * kSteps + k][term], h, add);
      });
      if constexpr (kStreamed > 0) release_streamed(done, streamed);
      if (j < with_held) multiply_streamed(sums, i + 1, first + i + 1, streamed++);
    }
    const char* const kept = ring.start + kShape.matrix_at() + part * (kKept * kShape.matrix_item_bytes());
    constexpr int left = kStreamed - with_held;
#pragma unroll 1
    for (int j = 0; j < kKept; ++j) {
      const int i = kShape.kept_place(j);
      multiply_shared(sums, kept + j * kShape.matrix_item_bytes(), i, first + i);
      if constexpr (kStreamed > 0) release_streamed(done, streamed);
      if (j < left) multiply_streamed(sums, i + 1, first + i + 1, streamed++);
    }
    if constexpr (left > kKept) {
#pragma unroll 1
      for (int j = kKept; j < left; ++j) {
        const int i = kShape.streamed_place(with_held + j);
        multiply_streamed(sums, i, first + i, streamed);
        release_streamed(done, streamed++);
      }
    }
    WaitForProducts<0>();
#pragma unroll
    for (int i = 0; i < kSums * kRows / 2; ++i) asm volatile("" : "+f"(sums[i / (kRows / 2)][i % (kRows / 2)]));
    release(first + kOwnItems - 1);
    if constexpr (kStreamed > 0) release_streamed(done, streamed);
  }

  /// Gives the other blocks of the group their part of the sums, and keeps the block's own.
  __device__ __forceinline__ void hand_out(float (&own)[kOwnSums], const float (&sum)[kRows / 2],
                                           const TeamExchange& exchange, const Team& team, int portion,
                                           int number) const {
    const unsigned sign = SignOf(number);
    uint4* const first = exchange.sums(portion, number, team.group(), 0, team.share()) + (part * 4 + warp) * 32 + lane;
#pragma unroll
    for (int owner = 0; owner < kShares; ++owner) {
      const bool is_own = owner == team.share();
      uint4* const to = first + owner * (kShares * kShape.shared_sum_bytes() / 16);
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        unsigned word[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float value = sum[(owner * kTiles + n) * 4 + i];
          if (is_own) own[n * 4 + i] = value;
          word[i] = (__float_as_uint(value) & ~1u) | sign;
        }
        if (!is_own) {
          asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to + n * kParts * kWarpgroup),
                       "r"(word[0]), "r"(word[1]), "r"(word[2]), "r"(word[3])
                       : "memory");
        }
      }
    }
  }
  /// Sources whose sums are waited for together: few enough for their registers.
  static constexpr int kAtOnce = kShares <= 1 ? 1 : kTiles >= 4 ? 1 : (4 / kTiles < kShares ? 4 / kTiles : kShares);
  /// Waits until the sums of `kAtOnce` sources from `first` on are there, except the block's own.
  __device__ __forceinline__ void wait_for_sums(uint4 (&got)[kAtOnce * kTiles], const uint4* first, int own,
                                                int number) const {
    const unsigned sign = SignOf(number);
#pragma unroll 1
    for (int tries = 0; tries < kMostTries; ++tries) {
      bool missing = false;
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
#pragma unroll
        for (int n = 0; n < kTiles; ++n) {
          uint4& v = got[i * kTiles + n];
          asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                       : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                       : "l"(first + i * (kShape.shared_sum_bytes() / 16) + n * kParts * kWarpgroup)
                       : "memory");
          const unsigned differ = (v.x ^ sign) | (v.y ^ sign) | (v.z ^ sign) | (v.w ^ sign);
          missing |= i != own && (differ & 1);
        }
      }
      if (!__any_sync(0xffffffffu, missing)) return;
    }
    // Within the loop, it would make the assembler take R out of its registers.
    asm volatile("trap;");
  }
  /// Adds what the other blocks have of the block's own sums, in the order of the blocks.
  __device__ __forceinline__ void collect(float (&own)[kOwnSums], const TeamExchange& exchange, const Team& team,
                                          int portion, int number) const {
    const uint4* const first =
        exchange.sums(portion, number, team.group(), team.share(), 0) + (part * 4 + warp) * 32 + lane;
    float all[kTiles * 4] = {};
#pragma unroll
    for (int source = 0; source < kShares; source += kAtOnce) {
      uint4 got[kAtOnce * kTiles];
      wait_for_sums(got, first + source * (kShape.shared_sum_bytes() / 16), team.share() - source, number);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const bool is_own = source + i == team.share();
#pragma unroll
        for (int n = 0; n < kTiles; ++n) {
          const uint4& v = got[i * kTiles + n];
          all[n * 4] += is_own ? own[n * 4] : __uint_as_float(v.x);
          all[n * 4 + 1] += is_own ? own[n * 4 + 1] : __uint_as_float(v.y);
          all[n * 4 + 2] += is_own ? own[n * 4 + 2] : __uint_as_float(v.z);
          all[n * 4 + 3] += is_own ? own[n * 4 + 3] : __uint_as_float(v.w);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kTiles * 4; ++i) own[i] = all[i];
    // A warp's products are issued by all of its lanes at once.
    __syncwarp();
  }
};

/// Begins a block's work: its barriers, the rows of its team, and zeros for what steps read of rows that have ended, or
/// of none.
template <class Shared>
PENSTOCK_DEVICE void Prepare(const Shared& shared, const DenseRows& rows, const Team& team) {
  if (threadIdx.x == 0) {
    shared.init();
    ShowBarriers();
  }
  for (int i = threadIdx.x; i < kShape.team_rows(); i += kThreads) {
    shared.rows[i] = Row::of_slot(rows, team.first_row + i, kDescending);
  }
  for (int i = threadIdx.x; i < kInputStages * kShape.input_bytes() / 16; i += kThreads) {
    ((uint4*)shared.input(0))[i] = make_uint4(0, 0, 0, 0);
  }
}

PENSTOCK_DEVICE int LongestRow(const Row* rows) {
  int longest = 0;
  for (int i = 0; i < kShape.team_rows(); ++i) longest = max(longest, rows[i].length);
  return longest;
}

/// Lays `kCount` items of each part of R where the tensor cores, or copies for them, read them: load(part, row of the
/// tile, column of the block, term) gets eight columns; place_of(i) is the place of item i among the part's.
/// Neighbouring threads load neighbouring rows (`kAlongRows`) or columns.
template <bool kAlongRows, int kCount, class Load, class PlaceOf>
PENSTOCK_DEVICE void LayItems(char* memory, const Load& load, const PlaceOf& place_of) {
  constexpr int of_item = kMatrixTerms * kDepth, of_part = kCount > 0 ? kCount * of_item : 1;
  constexpr int rows = WarpgroupShape::tile_rows, pieces = 8;
  for (int i = threadIdx.x; i < kParts * kCount * of_item * rows * pieces; i += kThreads) {
    const int chunk = i / (rows * pieces), row = kAlongRows ? i % rows : i / pieces % rows;
    const int piece = kAlongRows ? i / rows % pieces : i % pieces, part = chunk / of_part;
    const int column = Product::column_of(part, place_of(chunk % of_part / of_item)) +
                       chunk % kDepth * WarpgroupShape::chunk_units + piece * 8;
    *(uint4*)(memory + chunk * WarpgroupShape::matrix_chunk_bytes + MatrixOfColumns::place(row, piece)) =
        load(part, row, column, chunk % of_item / kDepth);
  }
}

/// What no registers hold of R has been laid: the tensor cores and copies see it.
PENSTOCK_DEVICE void ShowMatrix() {
  ShowTensorCores();
  if constexpr (kStreamed > 0) ShowGlobalCopies();
}

/// Lays what no registers hold of R.
template <bool kAlongRows, class Load>
PENSTOCK_DEVICE void LayMatrix(char* memory, const TeamExchange& exchange, const Team& team, const Load& load) {
  LayItems<kAlongRows, kKept>(memory + kShape.matrix_at(), load, [](int i) { return kShape.kept_place(i); });
  LayItems<kAlongRows, kStreamed>(exchange.streamed(team.member, 0), load,
                                  [](int i) { return kShape.streamed_place(i); });
  ShowMatrix();
}
