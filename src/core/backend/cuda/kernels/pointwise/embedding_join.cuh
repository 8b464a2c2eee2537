// The rows of the gradient whose runs span several segments: each by the segment that its run begins in.
//
// Constants: as of embedding_segments.cuh.

#include "backend/cuda/kernels/pointwise/rows.cuh"

#include "backend/cuda/kernels/pointwise/arguments.cuh"

/// The first index from `low` on whose token is another one.
PENSTOCK_DEVICE Index EndOfRun(const EmbeddingBackwardArguments& args, Index low, int token) {
  Index high = args.positions;
  while (low < high) {
    const Index middle = (low + high) / 2;
    if (args.sorted[middle].token > token) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

extern "C" __global__ void __launch_bounds__(kThreads)
    EmbeddingJoin(const __grid_constant__ EmbeddingBackwardArguments args) {
  WaitForKernelBefore();
  const Index segment = (Index)blockIdx.x * kRowsOfBlock + threadIdx.x / kGroup;
  const Index begin = segment * kSegment, end = begin + kSegment;
  if (end >= args.positions) return;
  const int token = args.sorted[end - 1].token;
  if (args.sorted[end].token != token || token >= args.vocabulary) return;
  // A run that fills this segment and the end of the one before has begun there.
  if (begin > 0 && args.sorted[begin - 1].token == token) return;
  const Index last = (EndOfRun(args, end, token) - 1) / kSegment;
  for (int step = 0; step < kSteps; ++step) {
    const int column = ColumnOf(step);
    if (!IsColumn(column)) break;
    float* const to = args.gradient + (Index)token * kWidth + column;
    float sum[kVector], part[kVector];
    Load<F32>(args.partial + (segment * 2 + 1) * kWidth + column, 0, sum);
#pragma unroll kAtOnce
    for (Index other = segment + 1; other <= last; ++other) {
      Load<F32>(args.partial + other * 2 * kWidth + column, 0, part);
      for (int i = 0; i < kVector; ++i) sum[i] += part[i];
    }
    if (kAdd) {
      Load<F32>(to, 0, part);
      for (int i = 0; i < kVector; ++i) sum[i] += part[i];
    }
    Store<F32>(to, 0, sum);
  }
}
