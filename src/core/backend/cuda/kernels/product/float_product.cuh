// D [M, N] = A [M, K] B [K, N] in floats, with what plain floats keep of them (split_product.cuh). A block makes one
// tile of D from one split of K, whose factors come to shared memory a few steps ahead.
//
// Constants of the plan: kTeamsM, kTeamsN (warps of a block over M and N), kTilesM, kTilesN (tiles of a warp), kDepth
// (steps whose factors a block holds or awaits), kTransposedA, kTransposedB (A lies as [K, M], B as [N, K]), kPieceA,
// kPieceB (bytes of one copy), kVector (columns of one access to D), kBias, kBlocks (of a multiprocessor),
// kSharedBytes.

#include "backend/cuda/kernels/product/split_product.cuh"

#include "backend/cuda/kernels/product/float_product_arguments.h"

constexpr int kThreads = kTeamsM * kTeamsN * kWarp;
constexpr int kTileM = kTeamsM * kTilesM * kRows, kTileN = kTeamsN * kTilesN * kColumns;
constexpr int kStep = 2 * kInner;  // of K

using Factors = Vector<F32, 4>;

/// One matrix' part of a step in shared memory: rows of M or N with kStep factors each, or kStep rows of `kExtent`.
/// Which bank a factor lies in depends on its row, so that the threads of a warp find theirs in different ones.
template <bool kAlongK, int kExtent, int kPiece>
struct Part {
  static constexpr int pitch = kAlongK ? kStep : (kExtent + 31) / 32 * 32;
  static constexpr int rows = kAlongK ? kExtent : kStep;
  static constexpr int floats = rows * pitch;

  PENSTOCK_DEVICE int place(int row, int column) {
    return row * pitch + (column ^ (kAlongK ? (row & 1) * 16 : (row >> 2 & 3) * 8));
  }

  /// Starts copies of rows from `first` on, columns from `first_column`; zeros beyond the matrix' ends.
  PENSTOCK_DEVICE void copy(const float* matrix, Index stride, Index first, Index end, Index first_column,
                            Index end_column, float* to) {
    constexpr int wide = kPiece / 4, pieces = pitch / wide;
#pragma unroll 2
    for (int n = threadIdx.x; n < rows * pieces; n += kThreads) {
      const int row = n / pieces, column = n % pieces * wide;
      const bool exists = first + row < end && first_column + column < end_column;
      const float* from = matrix + (exists ? (first + row) * stride + first_column + column : 0);
      CopyAsync<kPiece>((char*)(to + place(row, column)), (const char*)from, exists);
    }
  }

  /// Four neighbouring factors of one row of M or column of N.
  PENSTOCK_DEVICE Factors read(const float* part, int index, int inner) {
    if constexpr (kAlongK) {
      return Factors::read((const char*)(part + place(index, inner)));
    } else {
      float factor[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) factor[i] = part[place(inner + i, index)];
      return Factors::of(factor);
    }
  }
};

using PartA = Part<!kTransposedA, kTileM, kPieceA>;
using PartB = Part<kTransposedB, kTileN, kPieceB>;

struct FloatProductShared {
  float a[kDepth][PartA::floats];
  float b[kDepth][PartB::floats];
};
static_assert(sizeof(FloatProductShared) <= kSharedBytes, "the plan knows how much shared memory there is");

#include "backend/cuda/kernels/product/product_place.cuh"

PENSTOCK_DEVICE void CopyStep(const FloatProductArguments& args, const TilePlace& tile, Index k, float* a, float* b) {
  if (k < tile.k_end) {
    if constexpr (kTransposedA) {
      PartA::copy(args.a, args.a_stride, k, tile.k_end, tile.m, args.m, a);
    } else {
      PartA::copy(args.a, args.a_stride, tile.m, args.m, k, tile.k_end, a);
    }
    if constexpr (kTransposedB) {
      PartB::copy(args.b, args.b_stride, tile.n, args.n, k, tile.k_end, b);
    } else {
      PartB::copy(args.b, args.b_stride, k, tile.k_end, tile.n, args.n, b);
    }
  }
  CommitCopies();
}

/// A warp's sums, tile by tile: of rows lane / 4 and 8 + lane / 4, columns 2 (lane % 4) and one more.
struct Sums {
  float sum[kTilesM][kTilesN][4];

  /// Zeros, or the bias.
  __device__ __forceinline__ void start(const FloatProductArguments& args, Index first_column) {
#pragma unroll
    for (int n = 0; n < kTilesN; ++n) {
      const Index column = first_column + n * kColumns + threadIdx.x % 4 * 2;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float first = kBias && column + i < args.n ? args.bias[column + i] : 0.0f;
#pragma unroll
        for (int m = 0; m < kTilesM; ++m) sum[m][n][i] = sum[m][n][i + 2] = first;
      }
    }
  }

  /// Adds the products of a step, or of as much of it as there is.
  __device__ __forceinline__ void multiply(const float* a, const float* b, int first_row, int first_column,
                                           Index exist) {
    const int lane = threadIdx.x % kWarp, begin = lane % 4 * 4;
    const int end = begin + (int)min(exist, (Index)kStep);
#pragma unroll 1
    for (int inner = begin; inner < end; inner += kInner) {
      SplitRows rows[kTilesM];
#pragma unroll
      for (int m = 0; m < kTilesM; ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          rows[m].set(half, PartA::read(a, first_row + m * kRows + half * 8 + lane / 4, inner));
        }
      }
#pragma unroll
      for (int n = 0; n + 1 < kTilesN; n += 2) multiply_columns<2>(rows, b, first_column, n, inner);
      if constexpr (kTilesN % 2 == 1) multiply_columns<1>(rows, b, first_column, kTilesN - 1, inner);
    }
  }

  /// Multiplies kCount tiles over N, from tile n on.
  template <int kCount>
  __device__ __forceinline__ void multiply_columns(const SplitRows (&rows)[kTilesM], const float* b, int first_column,
                                                   int n, int inner) {
    Split columns[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      columns[i].set(PartB::read(b, first_column + (n + i) * kColumns + (int)threadIdx.x % kWarp / 4, inner));
    }
    MultiplySplit(rows, columns, [&](int m, int i) -> float(&)[4] { return sum[m][n + i]; });
  }

  /// `kAdd`: to what D holds.
  template <bool kAdd>
  __device__ __forceinline__ void store(const FloatProductArguments& args, const TilePlace& tile, int first_row,
                                        int first_column) const {
    const int lane = threadIdx.x % kWarp;
    const Index row = tile.m + first_row + lane / 4, column = tile.n + first_column + lane % 4 * 2;
    float* const d = args.d + tile.split * args.d_split + row * args.d_stride + column;
#pragma unroll
    for (int n = 0; n < kTilesN; ++n) {
      const int ahead = n * kColumns;
      const int columns = (int)min(max(args.n - column - ahead, 0ll), 2ll);
#pragma unroll
      for (int m = 0; m < 2 * kTilesM; ++m) {
        if (row + m * 8 >= args.m) continue;
        float* to = d + m * 8 * args.d_stride + ahead;
        const float* from = &sum[m / 2][n][m % 2 * 2];
        if (kVector == 2 && !kAdd) {
          if (columns == 2) *(float2*)to = make_float2(from[0], from[1]);
        } else {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            if (i < columns) to[i] = from[i] + (kAdd ? to[i] : 0.0f);
          }
        }
      }
    }
  }
};

/// Adds a step's factors of A to the sums of a thread's rows of M.
PENSTOCK_DEVICE void AddFactors(const float* a, float (&sum)[(kTileM + kThreads - 1) / kThreads]) {
#pragma unroll
  for (int n = 0; n < (kTileM + kThreads - 1) / kThreads; ++n) {
    const int index = threadIdx.x + n * kThreads;
    if (index >= kTileM) continue;
#pragma unroll 4
    for (int inner = 0; inner < kStep; inner += 4) {
      const Factors four = PartA::read(a, index, inner);
      sum[n] += (four.get(0) + four.get(1)) + (four.get(2) + four.get(3));
    }
  }
}

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks)
    FloatProduct(const __grid_constant__ FloatProductArguments args) {
  extern __shared__ __align__(16) char memory[];
  FloatProductShared& shared = *(FloatProductShared*)memory;
  const TilePlace tile(args);
  const int warp = threadIdx.x / kWarp;
  const int first_row = warp / kTeamsN * (kTilesM * kRows), first_column = warp % kTeamsN * (kTilesN * kColumns);
  const bool adds_factors = args.sums != nullptr && tile.n == 0;
#pragma unroll
  for (int n = 0; n < kDepth - 1; ++n) CopyStep(args, tile, tile.k + n * kStep, shared.a[n], shared.b[n]);
  Sums sums;
  sums.start(args, tile.n + first_column);
  float of_a[(kTileM + kThreads - 1) / kThreads] = {};
  int stage = 0;
#pragma unroll 1
  for (Index k = tile.k; k < tile.k_end; k += kStep) {
    WaitForCopies<kDepth - 2>();
    __syncthreads();
    // The stage before this one is free: all have come past its products.
    const int free = stage == 0 ? kDepth - 1 : stage - 1;
    CopyStep(args, tile, k + (kDepth - 1) * kStep, shared.a[free], shared.b[free]);
    sums.multiply(shared.a[stage], shared.b[stage], first_row, first_column, tile.k_end - k);
    if (adds_factors) AddFactors(shared.a[stage], of_a);
    stage = stage + 1 == kDepth ? 0 : stage + 1;
  }
  if (args.add) {
    sums.store<true>(args, tile, first_row, first_column);
  } else {
    sums.store<false>(args, tile, first_row, first_column);
  }
  if (!adds_factors) return;
#pragma unroll
  for (int n = 0; n < (kTileM + kThreads - 1) / kThreads; ++n) {
    const int index = threadIdx.x + n * kThreads;
    if (index < kTileM && tile.m + index < args.m) args.sums[tile.split * args.sums_split + tile.m + index] = of_a[n];
  }
}
