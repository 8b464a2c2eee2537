// Sums over the rows that a thread sees, of the columns that it has in each of kMany tensors of kWidth columns.
//
// Constants: those of rows.cuh.

template <int kMany>
struct ColumnSums {
  float v[kMany][kSteps][kVector];

  PENSTOCK_DEVICE ColumnSums zero() {
    ColumnSums sums;
#pragma unroll
    for (int which = 0; which < kMany; ++which) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        for (int i = 0; i < kVector; ++i) sums.v[which][step][i] = 0.0f;
      }
    }
    return sums;
  }

  __device__ __forceinline__ void add(int which, int step, const float (&x)[kVector]) {
    for (int i = 0; i < kVector; ++i) v[which][step][i] += x[i];
  }

  /// to [kMany, kWidth] = what all threads of the block have, row of threads by row of threads. Every thread of the
  /// block must come here.
  __device__ __forceinline__ void store(float* to) const {
    __shared__ float sums[kRowsOfBlock][kMany][kWidth];
#pragma unroll
    for (int which = 0; which < kMany; ++which) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        const int column = ColumnOf(step);
        if (!IsColumn(column)) continue;
        for (int i = 0; i < kVector; ++i) {
          if constexpr (kRowsOfBlock == 1) {
            to[which * kWidth + column + i] = v[which][step][i];
          } else {
            sums[threadIdx.x / kGroup][which][column + i] = v[which][step][i];
          }
        }
      }
    }
    if constexpr (kRowsOfBlock > 1) {
      __syncthreads();
      for (int at = threadIdx.x; at < kMany * kWidth; at += kThreads) {
        float sum = sums[0][at / kWidth][at % kWidth];
        for (int row = 1; row < kRowsOfBlock; ++row) sum += sums[row][at / kWidth][at % kWidth];
        to[at] = sum;
      }
    }
  }
};
