// The gradients of g and v, in their order, from that of y = silu(g) * v; they may replace g and v. With kSums, also
// the sums of their columns over the rows of a block, which are the gradient of a bias in g and v.
//
// Constants: Storage, kSums; those of rows.cuh. With kSums a row fits the registers of its threads, twice.

#include "backend/cuda/kernels/pointwise/rows.cuh"

#include "backend/cuda/kernels/pointwise/arguments.cuh"

#include "backend/cuda/kernels/pointwise/column_sums.cuh"

constexpr int kAtOnce = kSums || kSteps < 2 ? kSteps : 2;  // vectors that are read before the first is used

PENSTOCK_DEVICE void GateBackward(float (&g)[kVector], float (&v)[kVector], const float (&dy)[kVector]) {
  for (int i = 0; i < kVector; ++i) {
    float sigmoid, rest;
    Sigmoids<Storage>(g[i], sigmoid, rest);
    const float silu = g[i] * sigmoid;
    // silu' = sigmoid (1 + g (1 - sigmoid))
    g[i] = dy[i] * v[i] * (sigmoid + silu * rest);
    v[i] = dy[i] * silu;
  }
}

/// Some vectors of a row.
struct Part {
  Packed<Storage, kVector> g[kAtOnce], v[kAtOnce], dy[kAtOnce];

  __device__ __forceinline__ void read(const GateArguments& args, Index row, int first) {
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const int column = ColumnOf(first + n);
      if (!IsColumn(column)) continue;
      g[n] = Packed<Storage, kVector>::read(args.gv, row * (2 * kWidth) + column);
      v[n] = Packed<Storage, kVector>::read(args.gv, row * (2 * kWidth) + kWidth + column);
      dy[n] = Packed<Storage, kVector>::read(args.dy, row * kWidth + column);
    }
  }

  /// dg and dv become what was stored.
  __device__ __forceinline__ void write(const GateArguments& args, Index row, int column, int n, float (&dg)[kVector],
                                        float (&dv)[kVector]) const {
    float of_y[kVector];
    for (int i = 0; i < kVector; ++i) dg[i] = g[n].get(i), dv[i] = v[n].get(i), of_y[i] = dy[n].get(i);
    GateBackward(dg, dv, of_y);
    Store<Storage>(args.to, row * (2 * kWidth) + column, dg);
    Store<Storage>(args.to, row * (2 * kWidth) + kWidth + column, dv);
  }
};

template <class Each>
PENSTOCK_DEVICE void RunRow(const GateArguments& args, Index row, const Each& each) {
#pragma unroll 1
  for (int first = 0; first < kSteps; first += kAtOnce) {
    Part part;
    part.read(args, row, first);
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const int column = ColumnOf(first + n);
      if (!IsColumn(column)) continue;
      float dg[kVector], dv[kVector];
      part.write(args, row, column, n, dg, dv);
      each(n, dg, dv);
    }
  }
}

extern "C" __global__ void __launch_bounds__(kThreads) SiluGateBackward(const __grid_constant__ GateArguments args) {
  WaitForKernelBefore();
  const Index first = (Index)blockIdx.x * kRowsOfBlock + threadIdx.x / kGroup;
  if constexpr (kSums) {
    auto sums = ColumnSums<2>::zero();
#pragma unroll 1
    for (Index row = first; row < args.rows; row += (Index)gridDim.x * kRowsOfBlock) {
      RunRow(args, row, [&](int n, const float(&dg)[kVector], const float(&dv)[kVector]) {
        sums.add(0, n, dg);
        sums.add(1, n, dv);
      });
    }
    sums.store(args.partial + (Index)blockIdx.x * 2 * kWidth);
  } else if (first < args.rows) {
    RunRow(args, first, [](int, const float(&)[kVector], const float(&)[kVector]) {});
  }
}
