// y = the row of the table that belongs to each token; zeros beyond the lengths, NaN for a token that no row belongs
// to.
//
// Constants: Storage (of y), Table; those of rows.cuh.

#include "backend/cuda/kernels/pointwise/rows.cuh"

#include "backend/cuda/kernels/pointwise/arguments.cuh"

extern "C" __global__ void __launch_bounds__(kThreads)
    EmbeddingForward(const __grid_constant__ EmbeddingForwardArguments args) {
  WaitForKernelBefore();
  const Index position = (Index)blockIdx.x * kRowsOfBlock + threadIdx.x / kGroup;
  if (position >= args.positions) return;
  const bool exists = PlaceOf(position, args.steps, args.lengths).exists();
  const int token = exists ? args.tokens[position] : 0;
  const bool sound = token >= 0 && token < args.vocabulary;
#pragma unroll 4
  for (int step = 0; step < kSteps; ++step) {
    const int column = ColumnOf(step);
    if (!IsColumn(column)) break;
    float v[kVector];
    for (int i = 0; i < kVector; ++i) v[i] = sound ? 0.0f : __int_as_float(0x7fffffff);
    if (exists && sound) Load<Table>(args.table, (Index)token * kWidth + column, v);
    Store<Storage>(args.y, position * kWidth + column, v);
  }
}
