// Splits a matrix of floats into pairs of float16 for float_pairs.cuh. Each 64 of K of a row have a scale, a power of
// two that makes the largest of them 2^14 to 2^15. A scaled float is high + low / 2^11; high has its first 11 bits, low
// the next 11. So a pair keeps a float to 2^-22 of it. That holds down to 2^-28 of the largest of the 64, and below for
// floats that need few bits; a row with another float, infinity or NaN is unfit.
//
// Constants of the plan: kTransposed (the matrix lies as [K, rows]), kPiece (bytes of one access), kSums (of the floats
// of each 64), kNarrow (scales are confined, so that float_pairs.cuh can apply those of both matrices one by one).

#include "backend/cuda/kernels/product/read_four.cuh"

#include "backend/cuda/kernels/dense/sm90.cuh"

#include "backend/cuda/kernels/product/warpgroup.cuh"

#include "backend/cuda/kernels/product/paired_matrix.h"

constexpr int kWarp = 32, kThreads = kTransposed ? 128 : 256, kBlock = PairedMatrix::block;
/// Eight threads share the 64 floats of a row that lie side by side; where rows do, a thread has all of them.
constexpr int kSharers = kTransposed ? 1 : 8, kFloats = kBlock / kSharers, kRowsAtOnce = kThreads / kSharers;
constexpr int kPieces = kFloats / 8, kLine = PairedMatrix::line;

/// 64 of K of a row, and a thread's share of them. Blocks that run at the same time read memory side by side.
struct RowBlock {
  Index row, block;
  int piece;  // of eight floats, the thread's first
  float value[kFloats];

  __device__ __forceinline__ explicit RowBlock(const SplitPairsArguments& args) {
    const auto blocks = (unsigned)((args.k + kBlock - 1) / kBlock), over_rows = gridDim.x / blocks;
    block = kTransposed ? blockIdx.x / over_rows : blockIdx.x % blocks;
    const unsigned place = kTransposed ? blockIdx.x % over_rows : blockIdx.x / blocks;
    row = (Index)place * kRowsAtOnce + threadIdx.x / kSharers;
    piece = threadIdx.x % kSharers;
    const Index k = block * kBlock + piece * 8;
    const int exist = row < args.rows ? (int)min(max(args.k - k, 0ll), (Index)kFloats) : 0;
    if constexpr (kTransposed) {
      const float* from = args.matrix + k * args.stride + row;
#pragma unroll
      for (int i = 0; i < kFloats; ++i, from += args.stride) value[i] = i < exist ? __ldg(from) : 0.0f;
    } else {
      const float* from = args.matrix + row * args.stride + k;
#pragma unroll
      for (int i = 0; i < kFloats; i += 4) ReadFour<kPiece>(from + i, exist - i, value + i);
    }
  }
};

/// The largest float's bits without the sign, and the sum, of all threads that share a row.
struct BlockSums {
  unsigned most = 0;
  float sum = 0.0f;

  __device__ __forceinline__ explicit BlockSums(const RowBlock& floats) {
#pragma unroll
    for (int i = 0; i < kFloats; ++i) {
      most = max(most, __float_as_uint(floats.value[i]) & 0x7fffffffu);
      sum += floats.value[i];
    }
#pragma unroll
    for (int other = 1; other < kSharers; other *= 2) {
      most = max(most, __shfl_xor_sync(~0u, most, other));
      sum += __shfl_xor_sync(~0u, sum, other);
    }
  }
};

/// Two scaled floats as pairs. Returns whether the pairs keep them.
PENSTOCK_DEVICE bool SplitTwo(const float* value, float up, unsigned& high, unsigned& low) {
  float scaled[2], rest[2];
  for (int i = 0; i < 2; ++i) scaled[i] = value[i] * up;
  high = F16::narrow(scaled[0], scaled[1]);
  for (int i = 0; i < 2; ++i) rest[i] = (scaled[i] - F16::widen(high >> 16 * i & 0xffff)) * 0x1p11f;
  low = F16::narrow(rest[0], rest[1]);
  bool fit = true;
  for (int i = 0; i < 2; ++i) {  // false for NaN
    const float lost = fabsf(rest[i] - F16::widen(low >> 16 * i & 0xffff));
    fit = fit && lost <= fabsf(scaled[i]) * 0x1p-11f && (scaled[i] != 0.0f || value[i] == 0.0f);
  }
  return fit;
}

PENSTOCK_DEVICE void MarkUnfit(const PairedMatrix& pairs, Index row) {
  if (atomicExch(pairs.unfit + row, 1) != 0) return;
  const int place = atomicAdd(pairs.count, 1);
  if (place < PairedMatrix::most_repaired) pairs.list[place] = (int)row;
}

/// Stores a thread's pieces of 16 bytes of high or of low parts. Threads with whole rows swap them in shared memory, a
/// warp in its own 4 KB, so that neighbours store neighbouring pieces.
PENSTOCK_DEVICE void StorePieces(char* parts, Index rows, const RowBlock& floats, const uint4 (&piece)[kPieces],
                                 char* memory) {
  char* const lines = parts + floats.block * rows * kLine;
  if constexpr (!kTransposed) {
    if (floats.row >= rows) return;
    const int place = MatrixOfColumns::place((int)(floats.row & 7), floats.piece);
    *(uint4*)(lines + (floats.row & ~7ll) * kLine + place) = piece[0];
  } else {
    const int lane = threadIdx.x % kWarp;
    const Index first_row = floats.row - lane, bytes = (rows - first_row) * kLine;
    char* const swap = memory + (threadIdx.x - lane) * kLine;
    __syncwarp();
#pragma unroll
    for (int n = 0; n < kPieces; ++n) *(uint4*)(swap + MatrixOfColumns::place(lane, n)) = piece[n];
    __syncwarp();
#pragma unroll
    for (int at = 16 * lane; at < kWarp * kLine; at += 16 * kWarp) {
      if (at < bytes) *(uint4*)(lines + first_row * kLine + at) = *(const uint4*)(swap + at);
    }
  }
}

extern "C" __global__ void __launch_bounds__(kThreads) SplitPairs(const __grid_constant__ SplitPairsArguments args) {
  extern __shared__ __align__(16) char memory[];
  const RowBlock floats(args);
  const BlockSums of(floats);
  // With a float's bias of 127. All below 2^-112 have one scale, which makes the last bits of any float 2^-23.
  const unsigned exponent = max(of.most >> 23, 15u);
  const float up = __uint_as_float((268 - exponent) << 23), down = __uint_as_float((exponent - 14) << 23);
  const PairedMatrix& pairs = args.pairs;
  bool fit = !kNarrow || of.most == 0 || (exponent >= 127 - 60 && exponent <= 127 + 100);
  uint4 high[kPieces], low[kPieces];
#pragma unroll
  for (int n = 0; n < kPieces; ++n) {
    unsigned highs[4], lows[4];
    for (int i = 0; i < 4; ++i) fit = SplitTwo(floats.value + 8 * n + 2 * i, up, highs[i], lows[i]) && fit;
    high[n] = make_uint4(highs[0], highs[1], highs[2], highs[3]);
    low[n] = make_uint4(lows[0], lows[1], lows[2], lows[3]);
  }
  StorePieces(pairs.high, pairs.rows, floats, high, memory);
  StorePieces(pairs.low, pairs.rows, floats, low, memory);
  if (floats.row >= pairs.rows) return;
  if (!fit) MarkUnfit(pairs, floats.row);
  if (floats.piece > 0) return;
  const Index line = floats.block * pairs.rows + floats.row;
  pairs.scale[line] = down;
  if constexpr (kSums) pairs.sums[line] = of.sum;
}
