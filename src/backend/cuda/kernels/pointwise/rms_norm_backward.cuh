// With n = x * inverse: dx = d + inverse * (gain dy - n mean(gain dy n)), and the gain's gradient, the sum of dy n over
// the rows of a block. dbranch = dropout's gradient of dx.
//
// Constants: Storage, kAdd (there is a d), kBranch (there is a dbranch); those of rows.cuh.

#include "backend/cuda/kernels/pointwise/rows.cuh"

#include "backend/cuda/kernels/pointwise/arguments.cuh"

#include "backend/cuda/kernels/pointwise/dropout.cuh"

/// Row by row, where the values of a row do not fit the registers: those of the gain's gradient are kept in memory,
/// each by the thread that adds to it.
PENSTOCK_DEVICE void AddGain(float* partial, const float (&v)[kVector], bool first) {
  float sum[kVector];
  for (int i = 0; i < kVector; ++i) sum[i] = 0.0f;
  if (!first) Load<F32>(partial, 0, sum);
  for (int i = 0; i < kVector; ++i) sum[i] += v[i];
  Store<F32>(partial, 0, sum);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    RmsNormBackward(const __grid_constant__ RmsNormBackwardArguments args) {
  constexpr int kKept = kHeld ? kSteps : 1;
  float* const partial = args.partial + (Index)blockIdx.x * kWidth;
  float gain[kKept][kVector], dgain[kKept][kVector];
#pragma unroll
  for (int step = 0; step < kKept; ++step) {
    for (int i = 0; i < kVector; ++i) gain[step][i] = dgain[step][i] = 0.0f;
    if (kHeld && IsColumn(ColumnOf(step))) Load<F32>(args.gain, ColumnOf(step), gain[step]);
  }
  bool first_row = true;
  for (Index first = (Index)blockIdx.x * kRowsOfBlock; first < args.rows; first += (Index)gridDim.x * kRowsOfBlock) {
    const Index asked = first + threadIdx.x / kGroup, row = min(asked, args.rows - 1);
    const bool exists = asked == row;
    const float inverse = args.inverse[row];
    float x[kKept][kVector], dy[kKept][kVector], dot = 0.0f;
#pragma unroll(kHeld ? kSteps : 1)
    for (int step = 0; step < kSteps; ++step) {
      const int column = ColumnOf(step), kept = kHeld ? step : 0;
      if (!IsColumn(column)) continue;
      Load<Storage>(args.x, row * kWidth + column, x[kept]);
      Load<Storage>(args.dy, row * kWidth + column, dy[kept]);
      if constexpr (!kHeld) Load<F32>(args.gain, column, gain[0]);
      for (int i = 0; i < kVector; ++i) dot = __fmaf_rn(gain[kept][i] * dy[kept][i], x[kept][i], dot);
    }
    const float pull = SumOfGroup(dot) * inverse * inverse * inverse * (1.0f / kWidth);
    if (!exists) continue;
#pragma unroll(kHeld ? kSteps : 1)
    for (int step = 0; step < kSteps; ++step) {
      const int column = ColumnOf(step), kept = kHeld ? step : 0;
      if (!IsColumn(column)) continue;
      const Index at = row * kWidth + column;
      if constexpr (!kHeld) {
        Load<Storage>(args.x, at, x[0]);
        Load<Storage>(args.dy, at, dy[0]);
        Load<F32>(args.gain, column, gain[0]);
      }
      float d[kVector];
      for (int i = 0; i < kVector; ++i) d[i] = 0.0f;
      if constexpr (kAdd) Load<Storage>(args.d, at, d);
      for (int i = 0; i < kVector; ++i) {
        d[i] += inverse * gain[kept][i] * dy[kept][i] - pull * x[kept][i];
        const float of_gain = dy[kept][i] * x[kept][i] * inverse;
        dgain[kept][i] = kHeld ? dgain[kept][i] + of_gain : of_gain;
      }
      Store<Storage>(args.dx, at, d);
      if constexpr (kBranch) {
        const Dropout dropout(args.dropout);
        for (int i = 0; i < kVector; ++i) d[i] = dropout.of(d[i], at + i);
        Store<Storage>(args.dbranch, at, d);
      }
      if constexpr (!kHeld) AddGain(partial + column, dgain[0], first_row);
    }
    first_row = false;
  }
  if constexpr (kHeld) {
    if constexpr (kRowsOfBlock == 1) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        if (IsColumn(ColumnOf(step))) Store<F32>(partial, ColumnOf(step), dgain[step]);
      }
    } else {
      __shared__ float sums[kRowsOfBlock][kWidth];
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        const int column = ColumnOf(step);
        if (!IsColumn(column)) continue;
        for (int i = 0; i < kVector; ++i) sums[threadIdx.x / kGroup][column + i] = dgain[step][i];
      }
      __syncthreads();
      for (int column = threadIdx.x; column < kWidth; column += kThreads) {
        float sum = sums[0][column];
        for (int other = 1; other < kRowsOfBlock; ++other) sum += sums[other][column];
        partial[column] = sum;
      }
    }
  }
}
