// With n = x * inverse: dx = d + inverse * (gain dy - n mean(gain dy n)), and the gain's gradient, the sum of dy n over
// the rows of a block. dbranch = dropout's gradient of dx.
//
// Constants: Storage, kAdd (there is a d), kBranch (there is a dbranch); those of rows.cuh.

#include "backend/cuda/kernels/pointwise/rows.cuh"

#include "backend/cuda/kernels/pointwise/arguments.cuh"

#include "backend/cuda/kernels/pointwise/dropout.cuh"

using Values = Packed<Storage, kVector>;

/// Row by row, where the values of a row do not fit the registers: those of the gain's gradient are kept in memory,
/// each by the thread that adds to it.
PENSTOCK_DEVICE void AddGain(float* partial, const float (&v)[kVector], bool first) {
  float sum[kVector];
  for (int i = 0; i < kVector; ++i) sum[i] = 0.0f;
  if (!first) Load<F32>(partial, 0, sum);
  for (int i = 0; i < kVector; ++i) sum[i] += v[i];
  Store<F32>(partial, 0, sum);
}

extern "C" __global__ void __launch_bounds__(kThreads, 1)
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
      float dx[kVector];
      for (int i = 0; i < kVector; ++i) {
        dx[i] = inverse * gain[kept][i] * dy[kept].get(i) - pull * x[kept].get(i);
        if constexpr (kAdd) dx[i] += d[kept].get(i);
        const float of_gain = exists ? dy[kept].get(i) * x[kept].get(i) * inverse : 0.0f;
        dgain[kept][i] = kHeld ? dgain[kept][i] + of_gain : of_gain;
      }
      if (exists) Store<Storage>(args.dx, at, dx);
      if constexpr (kBranch) {
        const Dropout dropout(args.dropout);
        for (int i = 0; i < kVector; ++i) dx[i] = dropout.of(dx[i], at + i);
        if (exists) Store<Storage>(args.dbranch, at, dx);
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
