// D [M, N] = A [M, K] B [K, N] in floats, as float_product.cuh, by Hopper's tensor cores. Two warpgroups multiply, each
// 64 rows by kGroupColumns columns: factors of A go from shared memory to registers, where they are split, those of B
// lie split in shared memory. If all of the block's split of B fits there, all threads split it first, and the block
// goes on from rows to rows; else a third warpgroup brings and splits stage after stage.
//
// Constants of the plan: kTeamsM, kTeamsN (warpgroups that multiply, over M and N, together two), kTilesM, kTilesN
// (tiles of a warpgroup), kDepth (stages of 32 of K, of B, that shared memory holds), kResident (that is all of the
// split), kAhead (stages of A there), kHalfLast (the last stage has no more than 16), kTransposedA, kTransposedB (A
// lies as [K, M], B as [N, K]), kPieceA, kPieceB (bytes of one access), kVector (columns of one access to D), kBias,
// kSumsOfA (over K), kBlocks (of a multiprocessor), kSharedBytes.

#include "backend/cuda/kernels/product/split_product.cuh"

#include "backend/cuda/kernels/product/warpgroup.cuh"

#include "backend/cuda/kernels/product/float_product_arguments.h"
#include "backend/cuda/kernels/product/paired_matrix.h"
#include "backend/cuda/kernels/product/unfit.cuh"

constexpr int kGroupColumns = kTilesN * kColumns, kGroupRows = kTilesM * kRows;
constexpr int kConsumers = kTeamsM * kTeamsN;
constexpr int kThreads = (kConsumers + (kResident ? 0 : 1)) * kWarpgroup;
constexpr int kTileM = kTeamsM * kGroupRows, kTileN = kTeamsN * kGroupColumns;
constexpr int kStage = 32;  // of K
constexpr int kSums = kGroupColumns / 2;
static_assert(kConsumers == 2 && kGroupRows == 64, "two take turns");

/// A warp's factors of A of one stage, 16 rows of 32, as they lie in memory: in rows whose pieces of 16 bytes change
/// places as those of B do, or, if A lies transposed, step of K by step, so far apart that no two threads of a warp
/// read from the same bank.
struct FactorsOfA {
  static constexpr int line = kTransposedA ? kRows : kStage, lines = kTransposedA ? kStage : kRows;
  static constexpr int pitch = kTransposedA ? 24 : kStage;
  float factor[lines * pitch];

  PENSTOCK_DEVICE int place(int at_line, int column) {
    return at_line * pitch + (kTransposedA ? column : column ^ (at_line & 7) * 4);
  }
  __device__ __forceinline__ float get(int row, int k) const {
    return factor[kTransposedA ? place(k, row) : place(row, k)];
  }
};

struct ProductShared {
  char high[kDepth][kTileN * MatrixOfColumns::bytes];
  char low[kDepth][kTileN * MatrixOfColumns::bytes];
  FactorsOfA a[kAhead][kConsumers * kWarpgroup / kWarp];
  float bias[kTileN];
  Barrier full[kDepth], empty[kDepth];
};
static_assert(sizeof(ProductShared) + 1024 <= kSharedBytes, "the plan knows how much shared memory there is");

#include "backend/cuda/kernels/product/product_place.cuh"
#include "backend/cuda/kernels/product/read_four.cuh"
#include "backend/cuda/kernels/product/store_sums.cuh"

/// A block's share: a place, and the same columns of the rows further down.
struct Share : TilePlace {
  Index m_step;
  int stages;

  __device__ __forceinline__ explicit Share(const FloatProductArguments& args)
      : TilePlace(args), m_step((Index)args.tiles_m * kTileM), stages((int)((k_end - k + kStage - 1) / kStage)) {}
};

/// Part of a stage of B that a thread copies at a time. For B [N, K]: four factors of a column, so that eight threads
/// read 128 bytes. For B [K, N]: sixteen of a column, while neighbouring threads read the columns next to it.
struct PartOfB {
  static constexpr int factors = kTransposedB ? 4 : 16;
  static constexpr int parts_of_column = kStage / factors;
  static constexpr int count = kTileN * parts_of_column;  // of a stage
  float factor[factors];

  PENSTOCK_DEVICE int column(int part) { return kTransposedB ? part / parts_of_column : part % kTileN; }
  /// Returns the number of the first of the part's factors among the stage's.
  PENSTOCK_DEVICE int inner(int part) { return (kTransposedB ? part % parts_of_column : part / kTileN) * factors; }

  /// Zeros where there is nothing.
  __device__ __forceinline__ void load(const FloatProductArguments& args, const Share& share, Index k, int part) {
    const Index at = share.n + column(part), from_k = k + inner(part);
    const int exist = part < count && at < args.n ? (int)min(max(share.k_end - from_k, 0ll), (Index)factors) : 0;
    if constexpr (kTransposedB) {
      ReadFour<kPieceB>(args.b + at * args.b_stride + from_k, exist, factor);
    } else {
      const float* from = args.b + from_k * args.b_stride + at;
#pragma unroll
      for (int i = 0; i < factors; ++i, from += args.b_stride) factor[i] = i < exist ? __ldg(from) : 0.0f;
    }
  }

  __device__ __forceinline__ void split(ProductShared& shared, int stage, int part) const {
    if (part >= count) return;
#pragma unroll
    for (int first = 0; first < factors; first += 4) {
      Split split;
      for (int i = 0; i < 4; ++i) split.set(i, factor[first + i]);
      const int place = MatrixOfColumns::place(column(part), (inner(part) + first) / 4);
      *(uint4*)(shared.high[stage] + place) = make_uint4(split.high[0], split.high[1], split.high[2], split.high[3]);
      *(uint4*)(shared.low[stage] + place) = make_uint4(split.low[0], split.low[1], split.low[2], split.low[3]);
    }
  }
};

/// All stages, by all threads of the block.
PENSTOCK_DEVICE void FillAll(const FloatProductArguments& args, const Share& share, ProductShared& shared) {
  constexpr int batch = 32 / PartOfB::factors;  // whose loads are under way together
  const int parts = share.stages * PartOfB::count;
#pragma unroll 1
  for (int first = threadIdx.x; first < parts; first += batch * kThreads) {
    PartOfB part[batch];
#pragma unroll
    for (int n = 0; n < batch; ++n) {
      const int number = min(first + n * kThreads, parts - 1);
      part[n].load(args, share, share.k + number / PartOfB::count * kStage, number % PartOfB::count);
    }
#pragma unroll
    for (int n = 0; n < batch; ++n) {
      const int number = min(first + n * kThreads, parts - 1);
      part[n].split(shared, number / PartOfB::count, number % PartOfB::count);
    }
  }
  ShowTensorCores();
}

/// Fills stages as they become empty, while the next one's factors are on their way.
PENSTOCK_DEVICE void Produce(const FloatProductArguments& args, const Share& share, ProductShared& shared) {
  constexpr int parts = (PartOfB::count + kWarpgroup - 1) / kWarpgroup;
  const int first = threadIdx.x % kWarpgroup;
  PartOfB part[parts];
#pragma unroll
  for (int n = 0; n < parts; ++n) part[n].load(args, share, share.k, first + n * kWarpgroup);
  RingPlace at;
#pragma unroll 1
  for (Index m = share.m; m < args.m; m += share.m_step) {
#pragma unroll 1
    for (int stage = 0; stage < share.stages; ++stage, at.next(kDepth)) {
      const Index next = share.k + (stage + 1 == share.stages ? 0 : (stage + 1) * kStage);
      shared.empty[at.place].wait(at.parity ^ 1);
#pragma unroll
      for (int n = 0; n < parts; ++n) {
        part[n].split(shared, at.place, first + n * kWarpgroup);
        part[n].load(args, share, next, first + n * kWarpgroup);
      }
      ShowTensorCores();
      shared.full[at.place].arrive();
    }
  }
}

/// Brings factors of A to shared memory stages before a warp wants them: stage after stage of its rows, then those of
/// the block's next rows.
struct CopiesOfA {
  static constexpr int wide = kPieceA / 4, pieces = FactorsOfA::line / wide;  // of a line
  static constexpr int lines_at_once = kWarp / pieces;
  const FloatProductArguments& args;
  const Share& share;
  ProductShared& shared;
  Index row;                // of the warp's first factors
  int line, column;         // of this thread's first piece
  const float* first;       // where that piece lies in the split
  int stage = 0, slot = 0;  // the next stage, and where it goes: the place of the one that is wanted next

  __device__ __forceinline__ CopiesOfA(const FloatProductArguments& arguments, const Share& of_block,
                                       ProductShared& of_all, Index first_row)
      : args(arguments),
        share(of_block),
        shared(of_all),
        row(first_row),
        line((int)threadIdx.x % kWarp / pieces),
        column((int)threadIdx.x % pieces * wide) {
    find_row();
#pragma unroll 1
    for (int n = 0; n < kAhead; ++n) next();
  }

  __device__ __forceinline__ void find_row() {
    first = args.a + (kTransposedA ? (share.k + line) * args.a_stride + row + column
                                   : (row + line) * args.a_stride + share.k + column);
  }

  /// Starts the next stage's copies.
  __device__ __forceinline__ void next() {
    const Index k = stage * kStage, factors_left = share.k_end - share.k - k, rows_left = args.m - row;
    const int lines_left = (int)min((kTransposedA ? factors_left : rows_left) - line, (Index)FactorsOfA::lines);
    const bool exists = column < (kTransposedA ? rows_left : factors_left);
    const float* from = first + (kTransposedA ? k * args.a_stride : k);
    FactorsOfA& to = shared.a[slot][threadIdx.x / kWarp];
#pragma unroll
    for (int n = 0; n < FactorsOfA::lines; n += lines_at_once, from += lines_at_once * args.a_stride) {
      CopyAsync<kPieceA>((char*)(to.factor + FactorsOfA::place(line + n, column)), (const char*)from,
                         exists && n < lines_left);
    }
    CommitCopies();
    slot = slot + 1 == kAhead ? 0 : slot + 1;
    if (++stage < share.stages) return;
    stage = 0, row += share.m_step;
    find_row();
  }
};

/// A thread's 4 x 4 factors of a stage as one multiplication after the other wants them: of rows r and r + 8, factors t
/// and t + 4.
struct ThreadFactors {
  float factor[4][4];  // [multiplication]

  __device__ __forceinline__ void read(const FactorsOfA& factors) {
    const int row = threadIdx.x % kWarp / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n < 4; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) factor[n][i] = factors.get(row + i % 2 * 8, 8 * n + t + i / 2 * 4);
    }
  }
};

struct SplitFactors {
  unsigned high[4][4], low[4][4];

  __device__ __forceinline__ explicit SplitFactors(const ThreadFactors& factors) {
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      Split split;
      for (int i = 0; i < 4; ++i) split.set(i, factors.factor[n][i]);
      // They are there before the first multiplication, which the compiler would begin with the first of them.
      for (int i = 0; i < 4; ++i) {
        high[n][i] = split.high[i], low[n][i] = split.low[i];
        asm volatile("" : "+r"(high[n][i]), "+r"(low[n][i])::"memory");
      }
    }
  }
};

/// Sums of the products of one stage, or of its first sixteen factors: small ones first. They are added to the others
/// in plain float arithmetic, which keeps what split_product.cuh promises.
template <bool kWhole>
PENSTOCK_DEVICE void MultiplyStage(float (&part)[kSums], const SplitFactors& a, const char* high, const char* low) {
  BeginMultiplying();
  MultiplyFirst(part, a.low[0], MatrixOfColumns::describe(high, 0));
  Multiply(part, a.high[0], MatrixOfColumns::describe(low, 0));
  Multiply(part, a.low[1], MatrixOfColumns::describe(high, 32));
  Multiply(part, a.high[1], MatrixOfColumns::describe(low, 32));
  if constexpr (kWhole) {
    Multiply(part, a.low[2], MatrixOfColumns::describe(high, 64));
    Multiply(part, a.high[2], MatrixOfColumns::describe(low, 64));
    Multiply(part, a.low[3], MatrixOfColumns::describe(high, 96));
    Multiply(part, a.high[3], MatrixOfColumns::describe(low, 96));
    Multiply(part, a.high[2], MatrixOfColumns::describe(high, 64));
    Multiply(part, a.high[3], MatrixOfColumns::describe(high, 96));
  }
  Multiply(part, a.high[0], MatrixOfColumns::describe(high, 0));
  Multiply(part, a.high[1], MatrixOfColumns::describe(high, 32));
  CommitMultiplying();
}

/// Sums of A's factors over K, if they are wanted and nobody else makes them.
struct FactorSums {
  float sum[2] = {};

  __device__ __forceinline__ void add(const ThreadFactors& factors) {
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      for (int half = 0; half < 2; ++half) sum[half] += factors.factor[n][half] + factors.factor[n][half + 2];
    }
  }

  __device__ __forceinline__ void store(const FloatProductArguments& args, const Share& share, Index row) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      sum[half] += __shfl_xor_sync(~0u, sum[half], 1);
      sum[half] += __shfl_xor_sync(~0u, sum[half], 2);
      const Index at = row + 8 * half;
      if (threadIdx.x % 4 == 0 && at < args.m) args.sums[share.split * args.sums_split + at] = sum[half];
      sum[half] = 0.0f;
    }
  }
};

/// A warpgroup that multiplies.
struct Consumer {
  const FloatProductArguments& args;
  const Share& share;
  ProductShared& shared;
  int group, first_row, first_column;  // of the warpgroup's threads in the tile
  CopiesOfA copies;
  RingPlace at;
  ThreadFactors factors;
  FactorSums factor_sums;
  float sum[kSums];

  __device__ __forceinline__ Consumer(const FloatProductArguments& arguments, const Share& of_block,
                                      ProductShared& of_all)
      : args(arguments),
        share(of_block),
        shared(of_all),
        group(threadIdx.x / kWarpgroup),
        first_row(group / kTeamsN * kGroupRows + threadIdx.x % kWarpgroup / kWarp * kRows + threadIdx.x % kWarp / 4),
        first_column(group % kTeamsN * kGroupColumns),
        copies(arguments, of_block, of_all, of_block.m + (first_row & -kRows)) {
    if (group == 1) PassTurn(0);
    read_factors();
  }

  __device__ __forceinline__ bool adds_factors() const { return kSumsOfA && share.n == 0 && first_column == 0; }

  /// The next stage's factors of A.
  __device__ __forceinline__ void read_factors() {
    WaitForCopies<kAhead - 1>();
    __syncwarp();
    factors.read(shared.a[copies.slot][threadIdx.x / kWarp]);
    __syncwarp();
    copies.next();
  }

  /// Adds a stage's products, and reads the next one's factors meanwhile.
  template <bool kWhole>
  __device__ __forceinline__ void add_stage() {
    const SplitFactors split(factors);
    if (adds_factors()) factor_sums.add(factors);
    if constexpr (!kResident) shared.full[at.place].wait(at.parity);
    // One group multiplies while the other splits and adds: side by side, both would be ready at the same time.
    WaitForTurn(group);
    float part[kSums];
    const int begin = first_column * MatrixOfColumns::bytes;
    MultiplyStage<kWhole>(part, split, shared.high[at.place] + begin, shared.low[at.place] + begin);
    PassTurn(1 - group);
    read_factors();
    WaitForProducts();
    if (!kResident && threadIdx.x % kWarp == 0) shared.empty[at.place].arrive();
#pragma unroll
    for (int i = 0; i < kSums; ++i) sum[i] += part[i];
    at.next(kDepth);
  }

  /// Zeros, or the bias.
  __device__ __forceinline__ void start_sums() {
    const float* bias = shared.bias + first_column + threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < kSums; ++i) sum[i] = kBias ? bias[i / 4 * 8 + i % 2] : 0.0f;
  }

  __device__ __forceinline__ void run() {
#pragma unroll 1
    for (Index m = share.m; m < args.m; m += share.m_step) {
      start_sums();
#pragma unroll 1
      for (int n = 1; n < share.stages; ++n) add_stage<true>();
      add_stage<!kHalfLast>();
      if (kResident) at = RingPlace();
      const Index row = m + first_row, column = share.n + first_column + threadIdx.x % 4 * 2;
      if (args.add) {
        StoreSums<true>(args, share.split, row, column, sum);
      } else {
        StoreSums<false>(args, share.split, row, column, sum);
      }
      if (adds_factors()) factor_sums.store(args, share, row);
    }
  }
};

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks)
    FloatProduct(const __grid_constant__ FloatProductArguments args) {
  extern __shared__ __align__(16) char memory[];
  const unsigned ahead = -(unsigned)__cvta_generic_to_shared(memory) & 1023;
  ProductShared& shared = *(ProductShared*)(memory + ahead);
  if (args.unfit != nullptr && !TooManyUnfit(args.unfit)) return;
  const Share share(args);
  if (threadIdx.x == 0) {
#pragma unroll 1
    for (int n = 0; n < kDepth; ++n) shared.full[n].init(kWarpgroup), shared.empty[n].init(kConsumers * 4);
  }
  for (int n = threadIdx.x; n < kTileN; n += kThreads) {
    shared.bias[n] = kBias && share.n + n < args.n ? args.bias[share.n + n] : 0.0f;
  }
  if constexpr (kResident) FillAll(args, share, shared);
  __syncthreads();
  if constexpr (kResident) {
    Consumer(args, share, shared).run();
  } else if (threadIdx.x >= kConsumers * kWarpgroup) {
    SetRegisters<72, false>();
    Produce(args, share, shared);
  } else {
    SetRegisters<216, true>();
    Consumer(args, share, shared).run();
  }
}
