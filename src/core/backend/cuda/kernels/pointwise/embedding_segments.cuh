// Sums of dy over runs of equal tokens among sorted positions, for kSegment of them. A run that lies within its segment
// is a row of the gradient; of one that does not, each segment keeps a part.
//
// Constants: Storage (of dy), kAdd (to what the gradient holds), kSegment, kAtOnce (positions read at a time); those of
// rows.cuh.

#include "backend/cuda/kernels/pointwise/rows.cuh"

#include "backend/cuda/kernels/pointwise/arguments.cuh"

struct Run {
  float sum[kVector];

  __device__ __forceinline__ void clear() {
    for (int i = 0; i < kVector; ++i) sum[i] = 0.0f;
  }
  __device__ __forceinline__ void add(const float (&v)[kVector]) {
    for (int i = 0; i < kVector; ++i) sum[i] += v[i];
  }
  __device__ __forceinline__ void finish(const EmbeddingBackwardArguments& args, int token, int segment, int column,
                                         bool whole, int part) {
    if (token < args.vocabulary) {
      float* const to = whole ? args.gradient + (Index)token * kWidth + column
                              : args.partial + ((Index)segment * 2 + part) * kWidth + column;
      if (kAdd && whole) {
        float old[kVector];
        Load<F32>(to, 0, old);
        for (int i = 0; i < kVector; ++i) sum[i] += old[i];
      }
      Store<F32>(to, 0, sum);
    }
    clear();
  }
};

extern "C" __global__ void __launch_bounds__(kThreads)
    EmbeddingSegments(const __grid_constant__ EmbeddingBackwardArguments args) {
  WaitForKernelBefore();
  const Index segment = (Index)blockIdx.x * kRowsOfBlock + threadIdx.x / kGroup;
  if (segment >= args.segments) return;
  const Index begin = segment * kSegment;
  const int count = (int)min((Index)kSegment, args.positions - begin);
  const TokenPosition* const items = args.sorted + begin;
  const bool begins_before = begin > 0 && items[-1].token == items[0].token;
  const bool goes_on = begin + count < args.positions && items[count].token == items[count - 1].token;
#pragma unroll 1
  for (int step = 0; step < kSteps; ++step) {
    const int column = ColumnOf(step);
    if (!IsColumn(column)) break;
    Run run;
    run.clear();
    bool first = begins_before;  // the run is the one that begins before the segment
#pragma unroll 1
    for (int from = 0; from < count; from += kAtOnce) {
      float v[kAtOnce][kVector];
      int token[kAtOnce + 1];
#pragma unroll
      for (int i = 0; i <= kAtOnce; ++i) token[i] = from + i < count ? items[from + i].token : -1;
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (token[i] < 0 || token[i] >= args.vocabulary) {
          for (int k = 0; k < kVector; ++k) v[i][k] = 0.0f;
        } else {
          Load<Storage>(args.dy, (Index)items[from + i].position * kWidth + column, v[i]);
        }
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        run.add(v[i]);
        if (token[i + 1] == token[i] || token[i] < 0) continue;
        const bool last = from + i + 1 == count;
        run.finish(args, token[i], (int)segment, column, !first && !(last && goes_on), first ? 0 : 1);
        first = false;
      }
    }
  }
}
