// D [M, N] = A [M, K] B [K, N] in floats as pairs of float16 (split_pairs.cuh), by Hopper's tensor cores: three
// products of float16 for one of floats, where warpgroup_product.cuh has three of tf32, which take twice the time.
//
// A block takes tile after tile of 128 rows by kGroupColumns columns. One thread brings units, the high or the low
// parts of 64 of K. Two warpgroups multiply, each 64 rows by all columns: first high x low and low x high, whose sums
// are then divided by 2^11, and on top of them high x high. After each 64 of K, plain float arithmetic scales these
// sums and adds them to the others, so that what tensor cores cut off does not add up. What is left out, low x low, is
// below 2^-22 of |a b|. While one warpgroup does this, the tensor cores work for the other: the two take turns.
//
// Constants of the plan: kTilesN (of 8 columns), kDepth (units that shared memory holds), kVector (columns of one
// access to D), kBias, kSumsOfA (over K), kSharedBytes.

#include "backend/cuda/kernels/dense/sm90.cuh"

#include "backend/cuda/kernels/product/warpgroup.cuh"

#include "backend/cuda/kernels/product/float_product_arguments.h"
#include "backend/cuda/kernels/product/paired_matrix.h"
#include "backend/cuda/kernels/product/unfit.cuh"

#include "backend/cuda/kernels/product/float_pairs_arguments.h"

constexpr int kWarp = 32, kGroups = 2, kRowsOfGroup = 64;
constexpr int kTileRows = kGroups * kRowsOfGroup, kGroupColumns = 8 * kTilesN, kSums = kGroupColumns / 2;
constexpr int kLine = PairedMatrix::line;
static_assert(kLine == MatrixOfColumns::bytes, "rows lie as tensor cores read them");

#include "backend/cuda/kernels/product/store_sums.cuh"

/// High or low parts of 64 of K.
struct Unit {
  char a[kTileRows * kLine], b[kGroupColumns * kLine];
};

/// Scales of 64 of K, and sums of A's floats. They come with the high parts.
struct Scales {
  float a[kTileRows], b[kGroupColumns], sums[kTileRows];
  static constexpr int bytes = 4 * (kTileRows + kGroupColumns + (kSumsOfA ? kTileRows : 0));
};

struct PairsShared {
  Unit unit[kDepth];
  Scales scales[kDepth];
  CopyBarrier full[kDepth], empty[kDepth];
};
static_assert(sizeof(PairsShared) <= kSharedBytes, "the plan knows how much shared memory there is");

/// The tiles of a block, one after the other. Blocks that work side by side need the same rows of A.
struct Tile {
  const FloatPairsArguments& args;
  unsigned number;
  int m, n, block, end, split;  // the first row and column, the first 64 of K and those behind the last

  __device__ __forceinline__ explicit Tile(const FloatPairsArguments& arguments) : args(arguments), number(blockIdx.x) {
    find();
  }
  __device__ __forceinline__ void find() {
    const unsigned over_m = args.product.tiles_m, over_n = args.product.tiles_n, row = number / over_n;
    split = (int)(row / over_m);
    m = (int)(row % over_m) * kTileRows, n = (int)(number % over_n) * kGroupColumns;
    block = split * args.split_blocks, end = min(block + args.split_blocks, args.blocks);
  }
  __device__ __forceinline__ bool there() const { return split < args.splits; }
  __device__ __forceinline__ void next() {
    number += gridDim.x;
    find();
  }
};

/// Brings units as places become empty: low parts, then high ones. One thread.
PENSTOCK_DEVICE void Bring(const FloatPairsArguments& args, PairsShared& shared) {
  RingPlace at;
#pragma unroll 1
  for (Tile tile(args); tile.there(); tile.next()) {
#pragma unroll 1
    for (int block = tile.block; block < tile.end; ++block) {
      const Index a = block * args.a.rows + tile.m, b = block * args.b.rows + tile.n;  // of rows of a unit
#pragma unroll
      for (int high = 0; high < 2; ++high, at.next(kDepth)) {
        Unit& unit = shared.unit[at.place];
        CopyBarrier& full = shared.full[at.place];
        shared.empty[at.place].wait(at.parity ^ 1);
        full.expect((int)sizeof(Unit) + (high ? Scales::bytes : 0));
        CopyBulk(unit.a, (high ? args.a.high : args.a.low) + a * kLine, sizeof(unit.a), full);
        CopyBulk(unit.b, (high ? args.b.high : args.b.low) + b * kLine, sizeof(unit.b), full);
        if (!high) continue;
        Scales& scales = shared.scales[at.place];
        CopyBulk((char*)scales.a, (const char*)(args.a.scale + a), sizeof(scales.a), full);
        CopyBulk((char*)scales.b, (const char*)(args.b.scale + b), sizeof(scales.b), full);
        if (kSumsOfA) CopyBulk((char*)scales.sums, (const char*)(args.a.sums + a), sizeof(scales.sums), full);
      }
    }
  }
}

/// A warpgroup that multiplies.
struct Multiplier {
  const FloatPairsArguments& args;
  PairsShared& shared;
  int group, first_row, first_column;  // of this thread's sums in the tile
  bool unfit_a, unfit_b;               // there are such rows, and columns
  RingPlace at;
  float sum[kSums], part[kSums], sums_of_a[2];

  __device__ __forceinline__ Multiplier(const FloatPairsArguments& arguments, PairsShared& of_block)
      : args(arguments),
        shared(of_block),
        group(threadIdx.x / kWarpgroup),
        first_row(threadIdx.x / kWarp * 16 + threadIdx.x % kWarp / 4),
        first_column(threadIdx.x % 4 * 2),
        unfit_a(__ldcg(args.a.count) != 0),
        unfit_b(__ldcg(args.b.count) != 0) {
    if (group == 1) PassTurn(0);
  }

  /// The compiler does not know that multiplications under way read and write these registers.
  __device__ __forceinline__ void settle() {
#pragma unroll
    for (int i = 0; i < kSums; ++i) Settle(part[i]);
  }

  __device__ __forceinline__ int wait_for_unit() {
    const int place = at.place;
    shared.full[place].wait(at.parity);
    at.next(kDepth);
    return place;
  }
  /// This warp needs a unit no longer.
  __device__ __forceinline__ void release(int place) {
    if (threadIdx.x % kWarp == 0) shared.empty[place].arrive();
  }

  /// Multiplies 64 of K of the group's rows: parts of A by parts of B. `add`: to what `part` holds. With `kLast`, the
  /// other group may begin with its own multiplications when this one has begun with its last.
  template <bool kLast>
  __device__ __forceinline__ void multiply(const Unit& a, const Unit& b, bool add) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (kLast && k == 3) PassTurn(1 - group);
      MultiplyShared(part, MatrixOfColumns::describe(a.a + group * kRowsOfGroup * kLine, 32 * k),
                     MatrixOfColumns::describe(b.b, 32 * k), add || k > 0);
    }
  }

  __device__ __forceinline__ void finish_multiplying() {
    CommitMultiplying();
    WaitForProducts();
    settle();
  }

  /// Adds the products of the next 64 of K.
  __device__ __forceinline__ void add_block() {
    const int low = wait_for_unit(), high = wait_for_unit();
    WaitForTurn(group);
    settle();
    BeginMultiplying();
    multiply<false>(shared.unit[high], shared.unit[low], false);
    multiply<true>(shared.unit[low], shared.unit[high], true);
    finish_multiplying();
    release(low);
#pragma unroll
    for (int i = 0; i < kSums; ++i) part[i] *= 0x1p-11f;
    WaitForTurn(group);
    settle();
    BeginMultiplying();
    multiply<true>(shared.unit[high], shared.unit[high], true);
    finish_multiplying();
    add_scaled(shared.scales[high]);
    __syncwarp();
    release(high);
  }

  __device__ __forceinline__ void add_scaled(const Scales& scales) {
    const float a[2] = {scales.a[first_row], scales.a[first_row + 8]};
#pragma unroll
    for (int j = 0; j < kTilesN; ++j) {
      const float2 b = *(const float2*)(scales.b + 8 * j + first_column);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& all = sum[4 * j + i];
        all = fmaf(part[4 * j + i] * (i % 2 == 0 ? b.x : b.y), a[i / 2], all);
      }
    }
    if constexpr (kSumsOfA) {
      for (int half = 0; half < 2; ++half) sums_of_a[half] += scales.sums[first_row + 8 * half];
    }
  }

  __device__ __forceinline__ float first_sum(const Tile& tile, int j, int i) const {
    const int column = tile.n + 8 * j + first_column + i % 2;
    return kBias && column < args.product.n ? __ldg(args.product.bias + column) : 0.0f;
  }
  __device__ __forceinline__ void start_sums(const Tile& tile) {
#pragma unroll
    for (int i = 0; i < kSums; ++i) sum[i] = first_sum(tile, i / 4, i % 4);
    sums_of_a[0] = sums_of_a[1] = 0.0f;
  }

  /// Sums of unfit rows and columns become what they began with: repair_product.cuh adds the products.
  __device__ __forceinline__ void clear_unfit(const Tile& tile) {
    if (!unfit_a && !unfit_b) return;
    const int* const rows = args.a.unfit + tile.m + first_row;
    const int a[2] = {__ldcg(rows), __ldcg(rows + 8)};
#pragma unroll
    for (int j = 0; j < kTilesN; ++j) {
      int2 b = make_int2(0, 0);
      if (unfit_b) b = __ldcg((const int2*)(args.b.unfit + tile.n + 8 * j + first_column));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if ((a[i / 2] | (i % 2 == 0 ? b.x : b.y)) != 0) sum[4 * j + i] = first_sum(tile, j, i);
      }
    }
  }

  __device__ __forceinline__ void store(const Tile& tile) {
    const FloatProductArguments& product = args.product;
    const int row = tile.m + first_row, column = tile.n + first_column;
    if (product.add) {
      StoreSums<true>(product, tile.split, row, column, sum);
    } else {
      StoreSums<false>(product, tile.split, row, column, sum);
    }
    if constexpr (kSumsOfA) {
      for (int half = 0; half < 2 && column == 0; ++half) {
        const Index of_row = row + 8 * half;
        if (of_row < product.m) product.sums[tile.split * product.sums_split + of_row] = sums_of_a[half];
      }
    }
  }

  __device__ __forceinline__ void run() {
#pragma unroll 1
    for (Tile tile(args); tile.there(); tile.next()) {
      start_sums(tile);
#pragma unroll 1
      for (int block = tile.block; block < tile.end; ++block) add_block();
      clear_unfit(tile);
      store(tile);
    }
  }
};

extern "C" __global__ void __launch_bounds__((kGroups + 1) * kWarpgroup, 1)
    FloatPairs(const __grid_constant__ FloatPairsArguments args) {
  extern __shared__ __align__(1024) char memory[];
  PairsShared& shared = *(PairsShared*)memory;
  if (TooManyUnfit(args.product.unfit)) return;
  if (threadIdx.x == 0) {
    for (int n = 0; n < kDepth; ++n) {
      shared.full[n].init(1), shared.empty[n].init(kGroups * (kWarpgroup / kWarp));
    }
    ShowBarriers();
  }
  __syncthreads();
  if (threadIdx.x >= kGroups * kWarpgroup) {
    SetRegisters<24, false>();
    if (threadIdx.x % kWarpgroup == 0) Bring(args, shared);
  } else {
    SetRegisters<240, true>();
    Multiplier(args, shared).run();
  }
}
