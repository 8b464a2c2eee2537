// What both passes of dense cells over large batches by warpgroups have: the team of blocks that shares R
// (dense_warpgroup_shape.h), what it exchanges, and the products.
//
// Nobody overwrites what others still read: what is sent lies where that of two steps before was, and whoever has all
// items of the step between knows that all blocks have multiplied by that.
//
// Constants: Storage, Rule, kTanhUnit, kBackward, kHead (D), kDescending, kReset, kEveryState, kSharedBytes; of the
// plan kRows, kPortions, kResident, kDepth, kStages as WarpgroupShape has them.

#include "backend/cuda/kernels/dense/barrier.cuh"
#include "backend/cuda/kernels/dense/cell.cuh"
#include "backend/cuda/kernels/dense/entered.cuh"
#include "backend/cuda/kernels/product/warpgroup.cuh"
#include "plan/kernels/dense_warpgroup_shape.h"

constexpr int kGates = Rule::gates, kStates = Rule::states, kSaved = Rule::saved, kBytes = Storage::bytes;
constexpr WarpgroupShape kShape = {kBackward, kGates,    kStates,   DenseCell::split, kHead,
                                   kRows,     kPortions, kResident, kDepth,           kStages};
constexpr int kParts = WarpgroupShape::parts, kThreads = WarpgroupShape::threads, kUnits = kShape.own_units();
constexpr int kItems = kShape.items(), kOwnItems = kShape.own_items(), kItemBytes = kShape.item_bytes();
constexpr int kTiles = kShape.own_tiles(), kInputStages = kShape.input_stages();
constexpr int kLoaders = WarpgroupShape::loaders;
constexpr int kSteps = kShape.steps_of_item();
/// Registers of the threads that multiply, and of the others: as many as the launch gave them all.
constexpr int kManyRegisters = 216, kFewRegisters = 72;
constexpr int kMostTries = 1 << 22;
static_assert(kBytes == 2 && !DenseCell::two_phases && kGates <= 4 && kItems <= 32);
static_assert(kShape.shared_bytes() == kSharedBytes && 8 * kShape.barriers() <= kShape.ring_at());
static_assert(sizeof(Row) == WarpgroupShape::row_bytes);

/// Where a block is: its team and its place there, its head and the first of its rows.
struct Team {
  int number, member, head, first_row;

  PENSTOCK_DEVICE Team here(int first, int heads) {
    Team t;
    t.number = (int)blockIdx.x / kShape.blocks(), t.member = (int)blockIdx.x % kShape.blocks();
    t.head = (first + t.number) % heads, t.first_row = (first + t.number) / heads * kShape.team_rows();
    return t;
  }
  /// Of the channels of all heads, the block's first.
  __device__ __forceinline__ int channel() const { return head * kHead + member * kUnits; }
};

/// What the blocks of a team exchange.
struct TeamExchange {
  char* first;  // [portion][2][slice]
  unsigned* counts;

  PENSTOCK_DEVICE TeamExchange of(char* exchange, int team) {
    char* const first = exchange + (Index)team * kShape.exchange_bytes();
    return {first, (unsigned*)(first + kPortions * 2 * kShape.portion_bytes())};
  }
  /// What was sent as `number`: in slices of the columns.
  __device__ __forceinline__ char* sent(int portion, int number) const {
    return first + (portion * 2 + (number & 1)) * kShape.portion_bytes();
  }
  __device__ __forceinline__ unsigned* count(int portion, int item) const {
    return counts + (portion * kShape.all_items() + item) * (WarpgroupShape::count_bytes / 4);
  }
  __device__ __forceinline__ bool has(int portion, int item, int number) const {
    unsigned sent;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(sent) : "l"(count(portion, item)) : "memory");
    return sent >= (unsigned)(kShape.blocks_of_item() * (number + 1));
  }
  __device__ __forceinline__ void add(int portion, int item) const {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(count(portion, item)) : "memory");
  }
};

/// What is written by stores and read by copies, or the other way round, within global memory.
PENSTOCK_DEVICE void ShowGlobalCopies() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

/// Where what is brought lies in shared memory, in stages that take turns.
struct Ring {
  char* start;         // of the block's shared memory
  CopyBarrier* full;   // [part][stage]
  CopyBarrier* empty;  // [part][stage]
  static constexpr int stages = kParts * kStages;

  PENSTOCK_DEVICE Ring of(char* start) { return {start, (CopyBarrier*)start, (CopyBarrier*)start + stages}; }
  __device__ __forceinline__ void init() const {
    for (int i = 0; i < stages; ++i) full[i].init(1), empty[i].init(1);
  }
  __device__ __forceinline__ char* item(int stage) const { return start + kShape.ring_at() + stage * kItemBytes; }
};

/// Brings what was sent as 0 to `count` - 1: each lane one item of a portion, of those from `first` on.
PENSTOCK_DEVICE void Bring(const Ring& ring, const TeamExchange& exchange, int first, int count) {
  const int item = threadIdx.x % 32, part = item % kParts, of_part = item / kParts;
#pragma unroll 1
  for (int step = 0; step < count; ++step) {
#pragma unroll 1
    for (int portion = 0; portion < kPortions; ++portion) {
      const unsigned number = (unsigned)(step * kPortions + portion) * kOwnItems + of_part;
      const unsigned stage = part * kStages + number % kStages, round = number / kStages;
      bool pending = item < kItems, is_sent = false;
      int tries = 0;
#pragma unroll 1
      while (true) {
        const unsigned left = __ballot_sync(0xffffffffu, pending);
        if (left == 0) break;
        if (pending && !is_sent) is_sent = exchange.has(portion, first + item, step);
        // Whoever has the stage before within this portion has started its copy.
        const bool turn = item < kStages * kParts || (left >> (item - kStages * kParts) & 1) == 0;
        if (pending && is_sent && turn && ring.empty[stage].passed((round & 1) ^ 1)) {
          pending = false;
          ShowGlobalCopies();
          ring.full[stage].expect(kItemBytes);
          CopyBulk(ring.item(stage), exchange.sent(portion, step) + (first + item) * kItemBytes, kItemBytes,
                   ring.full[stage]);
        }
        if (++tries == kMostTries) asm volatile("trap;");
      }
    }
  }
}

/// What a warpgroup has of R, and its share of the sums.
struct Product {
  const Ring& ring;
  int part, warp, lane;
  unsigned held[kResident > 0 ? kResident : 1][4];

  /// The column of the block's where item `i` of a part begins.
  PENSTOCK_DEVICE int column_of(int part, int i) { return (i * kParts + part) * kDepth * WarpgroupShape::slice_units; }

  __device__ __forceinline__ int stage_of(unsigned number) const { return part * kStages + number % kStages; }
  __device__ __forceinline__ void release(unsigned number) const {
    if (warp == 0 && lane == 0) ring.empty[stage_of(number)].arrive();
  }

  /// Multiplies by an item, the i-th of a portion, as soon as it is there; the one before is then done with.
  /// step(k, description of what was brought, whether there are sums to add to).
  template <class Step>
  __device__ __forceinline__ void multiply_item(int i, unsigned number, const Step& step) const {
    ring.full[stage_of(number)].wait(number / kStages & 1);
    const unsigned long long h = MatrixOfColumns().describe(ring.item(stage_of(number)), 0);
    BeginMultiplying();
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      step(k, h + (k / 4 * kShape.slice_bytes() + k % 4 * 32) / 16, (int)(i > 0 || k > 0));
    }
    CommitMultiplying();
    if (i > 0) {
      WaitForProducts<1>();
      release(number - 1);
    }
  }

  /// The sums of a portion.
  __device__ __forceinline__ void multiply(float (&sum)[kRows / 2], int turn) const {
    const unsigned first = (unsigned)turn * kOwnItems;
#pragma unroll
    for (int i = 0; i < kShape.resident_items(); ++i) {
      multiply_item(i, first + i,
                    [&](int k, unsigned long long h, int add) { MultiplyHeld(sum, held[i * kSteps + k], h, add); });
    }
    const char* const matrix =
        ring.start + kShape.matrix_at() + part * (kShape.matrix_slices() / kParts) * WarpgroupShape::matrix_slice_bytes;
#pragma unroll 1
    for (int i = kShape.resident_items(); i < kOwnItems; ++i) {
      const char* const of_item = matrix + (i - kShape.resident_items()) * kDepth * WarpgroupShape::matrix_slice_bytes;
      const unsigned long long r = MatrixOfColumns().describe(of_item, 0);
      multiply_item(i, first + i, [&](int k, unsigned long long h, int add) {
        MultiplyShared(sum, r + (k / 4 * WarpgroupShape::matrix_slice_bytes + k % 4 * 32) / 16, h, add);
      });
    }
    WaitForProducts<0>();
#pragma unroll
    for (int i = 0; i < kRows / 2; ++i) asm volatile("" : "+f"(sum[i]));
    release(first + kOwnItems - 1);
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

/// Lays slices of R that no registers hold where the tensor cores read them: load(row of the tile, column of the block)
/// gets eight columns. Neighbouring threads load neighbouring rows (`kAlongRows`) or columns.
template <bool kAlongRows, class Load>
PENSTOCK_DEVICE void LayMatrix(char* memory, const Load& load) {
  constexpr int slices = kShape.matrix_slices(), of_part = slices > 0 ? slices / kParts : 1;
  constexpr int rows = WarpgroupShape::tile_rows, pieces = 8;
  for (int i = threadIdx.x; i < slices * rows * pieces; i += kThreads) {
    const int slice = i / (rows * pieces), row = kAlongRows ? i % rows : i / pieces % rows;
    const int piece = kAlongRows ? i / rows % pieces : i % pieces;
    const int item = kShape.resident_items() + slice % of_part / kDepth;
    const int column =
        Product::column_of(slice / of_part, item) + slice % of_part % kDepth * WarpgroupShape::slice_units + piece * 8;
    *(uint4*)(memory + kShape.matrix_at() + slice * WarpgroupShape::matrix_slice_bytes +
              MatrixOfColumns::place(row, piece)) = load(row, column);
  }
  ShowTensorCores();
}
