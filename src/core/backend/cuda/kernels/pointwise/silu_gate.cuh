// y = silu(g) * v of rows that hold g [W], then v [W]; silu(x) = x sigmoid(x).
//
// Constants: Storage; those of rows.cuh.

#include "backend/cuda/kernels/pointwise/rows.cuh"

#include "backend/cuda/kernels/pointwise/arguments.cuh"

extern "C" __global__ void __launch_bounds__(kThreads) SiluGate(const __grid_constant__ GateArguments args) {
  WaitForKernelBefore();
  const Index row = (Index)blockIdx.x * kRowsOfBlock + threadIdx.x / kGroup;
  if (row >= args.rows) return;
#pragma unroll(kSteps < 4 ? kSteps : 4)
  for (int step = 0; step < kSteps; ++step) {
    const int column = ColumnOf(step);
    if (!IsColumn(column)) continue;
    float g[kVector], v[kVector];
    Load<Storage>(args.gv, row * (2 * kWidth) + column, g);
    Load<Storage>(args.gv, row * (2 * kWidth) + kWidth + column, v);
    for (int i = 0; i < kVector; ++i) {
      float sigmoid, rest;
      Sigmoids<Storage>(g[i], sigmoid, rest);
      v[i] *= g[i] * sigmoid;
    }
    Store<Storage>(args.to, row * kWidth + column, v);
  }
}
