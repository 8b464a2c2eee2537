// sum = x + dropout(branch), y = gain * sum / sqrt(mean(sum^2) + epsilon), row by row.
//
// Constants: Storage, kBranch (there is one), kDropout; those of rows.cuh.

#include "backend/cuda/kernels/pointwise/rows.cuh"

#include "backend/cuda/kernels/pointwise/arguments.cuh"

#include "backend/cuda/kernels/pointwise/dropout.cuh"

/// The vector of x from `at` on, or of the sum, which it stores for a row that exists.
PENSTOCK_DEVICE void MakeSum(const RmsNormForwardArguments& args, Index at, bool exists, float (&v)[kVector]) {
  Load<Storage>(args.x, at, v);
  if constexpr (kBranch) {
    float branch[kVector];
    Load<Storage>(args.branch, at, branch);
    if constexpr (kDropout) {
      const Dropout dropout(args.dropout);
      for (int i = 0; i < kVector; ++i) branch[i] = dropout.of(branch[i], at + i);
    }
    for (int i = 0; i < kVector; ++i) v[i] += branch[i];
    Round<Storage>(v);
    if (exists) Store<Storage>(args.sum, at, v);
  }
}

extern "C" __global__ void __launch_bounds__(kThreads)
    RmsNormForward(const __grid_constant__ RmsNormForwardArguments args) {
  WaitForKernelBefore();
  float gain[kHeld ? kSteps : 1][kVector];
  if constexpr (kHeld) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (IsColumn(ColumnOf(step))) Load<F32>(args.gain, ColumnOf(step), gain[step]);
    }
  }
#pragma unroll 1
  for (Index first = (Index)blockIdx.x * kRowsOfBlock; first < args.rows; first += (Index)gridDim.x * kRowsOfBlock) {
    const Index asked = first + threadIdx.x / kGroup, row = min(asked, args.rows - 1);
    const bool exists = asked == row;
    float held[kHeld ? kSteps : 1][kVector], squares = 0.0f;
#pragma unroll(kHeld ? kSteps : 1)
    for (int step = 0; step < kSteps; ++step) {
      float(&v)[kVector] = held[kHeld ? step : 0];
      const int column = ColumnOf(step);
      if (!IsColumn(column)) continue;
      MakeSum(args, row * kWidth + column, exists, v);
      for (int i = 0; i < kVector; ++i) squares = __fmaf_rn(v[i], v[i], squares);
    }
    const float mean = SumOfGroup(squares) * (1.0f / kWidth);
    const float inverse = __frcp_rn(__fsqrt_rn(mean + args.epsilon));
    if (!exists) continue;
    if (args.inverse != nullptr && threadIdx.x % kGroup == 0) args.inverse[row] = inverse;
#pragma unroll(kHeld ? kSteps : 1)
    for (int step = 0; step < kSteps; ++step) {
      float(&v)[kVector] = held[kHeld ? step : 0];
      const int column = ColumnOf(step);
      if (!IsColumn(column)) continue;
      const Index at = row * kWidth + column;
      if constexpr (!kHeld) {
        Load<Storage>(kBranch ? args.sum : args.x, at, v);
        Load<F32>(args.gain, column, gain[0]);
      }
      float y[kVector];
      for (int i = 0; i < kVector; ++i) y[i] = gain[kHeld ? step : 0][i] * (v[i] * inverse);
      Store<Storage>(args.y, at, y);
    }
  }
}
