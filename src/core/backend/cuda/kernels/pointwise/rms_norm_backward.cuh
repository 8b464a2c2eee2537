// With n = x * inverse: dx = d + inverse * (gain dy - n mean(gain dy n)), and the gain's gradient, the sum of dy n over
// the rows of a block. dbranch = dropout's gradient of dx. With kSums, also the sums of the columns of the branch's
// gradient, which are the gradient of a bias that ends the branch.
//
// Constants: Storage, kAdd (there is a d), kBranch (there is a dbranch), kSums; those of rows.cuh.

#include "backend/cuda/kernels/pointwise/rows.cuh"

#include "backend/cuda/kernels/pointwise/arguments.cuh"

#include "backend/cuda/kernels/pointwise/column_sums.cuh"
#include "backend/cuda/kernels/pointwise/dropout.cuh"

using Values = Packed<Storage, kVector>;

constexpr int kMany = kSums ? 2 : 1;  // what is summed: the gain's gradient, and that of the branch

/// Row by row, where the values of a row do not fit the registers: the sums are kept in memory, each by the thread that
/// adds to it.
PENSTOCK_DEVICE void AddInMemory(float* partial, const float (&v)[kVector], bool first) {
  float sum[kVector];
  for (int i = 0; i < kVector; ++i) sum[i] = 0.0f;
  if (!first) Load<F32>(partial, 0, sum);
  for (int i = 0; i < kVector; ++i) sum[i] += v[i];
  Store<F32>(partial, 0, sum);
}

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    RmsNormBackward(const __grid_constant__ RmsNormBackwardArguments args) {
  WaitForKernelBefore();
  constexpr int kKept = kHeld ? kSteps : 1;
  float* const partial = args.partial + (Index)blockIdx.x * kMany * kWidth;
  auto sums = ColumnSums<kMany>::zero();
  float gain[kKept][kVector];
#pragma unroll
  for (int step = 0; step < kKept; ++step) {
    for (int i = 0; i < kVector; ++i) gain[step][i] = 0.0f;
    if (kHeld && IsColumn(ColumnOf(step))) Load<F32>(args.gain, ColumnOf(step), gain[step]);
  }
  bool first_row = true;
#pragma unroll 1
  for (Index first = (Index)blockIdx.x * kRowsOfBlock; first < args.rows; first += (Index)gridDim.x * kRowsOfBlock) {
    const Index asked = first + threadIdx.x / kGroup, row = min(asked, args.rows - 1);
    const bool exists = asked == row;
    const float inverse = args.inverse[row];
    Values x[kKept], dy[kKept], d[kKept];
    float dot = 0.0f;
#pragma unroll(kHeld ? kSteps : 1)
    for (int step = 0; step < kSteps; ++step) {
      const int column = ColumnOf(step), kept = kHeld ? step : 0;
      if (!IsColumn(column)) continue;
      x[kept] = Values::read(args.x, row * kWidth + column);
      dy[kept] = Values::read(args.dy, row * kWidth + column);
      if constexpr (kAdd && kHeld) d[kept] = Values::read(args.d, row * kWidth + column);
      if constexpr (!kHeld) Load<F32>(args.gain, column, gain[0]);
      for (int i = 0; i < kVector; ++i) dot = __fmaf_rn(gain[kept][i] * dy[kept].get(i), x[kept].get(i), dot);
    }
    const float pull = SumOfGroup(dot) * inverse * inverse * inverse * (1.0f / kWidth);
#pragma unroll(kHeld ? kSteps : 1)
    for (int step = 0; step < kSteps; ++step) {
      const int column = ColumnOf(step), kept = kHeld ? step : 0;
      if (!IsColumn(column)) continue;
      const Index at = row * kWidth + column;
      if constexpr (!kHeld) {
        x[0] = Values::read(args.x, at);
        dy[0] = Values::read(args.dy, at);
        if constexpr (kAdd) d[0] = Values::read(args.d, at);
        Load<F32>(args.gain, column, gain[0]);
      }
      float dx[kVector], of_gain[kVector];
      for (int i = 0; i < kVector; ++i) {
        dx[i] = inverse * gain[kept][i] * dy[kept].get(i) - pull * x[kept].get(i);
        if constexpr (kAdd) dx[i] += d[kept].get(i);
        of_gain[i] = exists ? dy[kept].get(i) * x[kept].get(i) * inverse : 0.0f;
      }
      if (exists) Store<Storage>(args.dx, at, dx);
      if constexpr (kBranch) {
        const Dropout dropout(args.dropout);
        for (int i = 0; i < kVector; ++i) dx[i] = dropout.of(dx[i], at + i);
        if (exists) Store<Storage>(args.dbranch, at, dx);
      }
      if constexpr (kHeld) sums.add(0, step, of_gain);
      if constexpr (!kHeld) AddInMemory(partial + column, of_gain, first_row);
      if constexpr (kSums) {
        for (int i = 0; i < kVector; ++i) dx[i] = exists ? dx[i] : 0.0f;
        if constexpr (kHeld) sums.add(1, step, dx);
        if constexpr (!kHeld) AddInMemory(partial + kWidth + column, dx, first_row);
      }
    }
    first_row = false;
  }
  if constexpr (kHeld) sums.store(partial);
}
