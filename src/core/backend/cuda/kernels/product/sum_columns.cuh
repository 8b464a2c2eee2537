// Sums of the columns of a matrix, in a fixed order: each block those of one split of rows; the last block to finish
// adds up what the splits gave.
//
// Constants of the plan: Storage, Result, kVector (columns of a thread), kGroups (of 32 threads, over rows).

#include "backend/cuda/kernels/product/sum_columns_arguments.h"

constexpr int kTileColumns = 32 * kVector;

extern "C" __global__ void __launch_bounds__(32 * kGroups, 1)
    SumColumns(const __grid_constant__ SumColumnsArguments args) {
  WaitForKernelBefore();
  __shared__ float part[kGroups][kTileColumns];
  __shared__ bool last;
  const int lane = threadIdx.x % 32, group = threadIdx.x / 32;
  const int tile = blockIdx.x / args.splits, split = blockIdx.x % args.splits;
  const int column = tile * kTileColumns + lane * kVector;
  const Index begin = args.rows * split / args.splits, end = args.rows * (split + 1) / args.splits;
  float sum[kVector] = {};
  if (column < args.columns) {
#pragma unroll 8
    for (Index row = begin + group; row < end; row += kGroups) {
      const auto values =
          Vector<Storage, kVector>::read(args.matrix + row * args.stride + (Index)column * Storage::bytes);
      for (int i = 0; i < kVector; ++i) sum[i] += values.get(i);
    }
  }
  for (int i = 0; i < kVector; ++i) part[group][lane * kVector + i] = sum[i];
  __syncthreads();
  for (int i = threadIdx.x; i < kTileColumns && tile * kTileColumns + i < args.columns; i += 32 * kGroups) {
    float all = 0.0f;
    for (int from = 0; from < kGroups; ++from) all += part[from][i];
    args.partial[(Index)split * args.columns + tile * kTileColumns + i] = all;
  }
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(&args.finished[tile], 1u) + 1 == (unsigned)args.splits;
  __syncthreads();
  if (!last) return;
  __threadfence();
  for (int i = threadIdx.x; i < kTileColumns && tile * kTileColumns + i < args.columns; i += 32 * kGroups) {
    const int at = tile * kTileColumns + i;
    float all[1] = {0.0f};
#pragma unroll 8
    for (int from = 0; from < args.splits; ++from) all[0] += __ldcg(&args.partial[(Index)from * args.columns + at]);
    Vector<Result, 1>::of(all).store(args.sums + (Index)at * Result::bytes);
  }
  if (threadIdx.x == 0) args.finished[tile] = 0;
}
