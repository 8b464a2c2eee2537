// The gradients of g and v, in their order, from that of y = silu(g) * v. They may replace g and v.
//
// Constants: Storage; those of rows.cuh.

#include "backend/cuda/kernels/pointwise/rows.cuh"

#include "backend/cuda/kernels/pointwise/arguments.cuh"

extern "C" __global__ void __launch_bounds__(kThreads) SiluGateBackward(const __grid_constant__ GateArguments args) {
  const Index row = (Index)blockIdx.x * kRowsOfBlock + threadIdx.x / kGroup;
  if (row >= args.rows) return;
#pragma unroll(kSteps < 2 ? kSteps : 2)
  for (int step = 0; step < kSteps; ++step) {
    const int column = ColumnOf(step);
    if (!IsColumn(column)) continue;
    const Index at = row * (2 * kWidth) + column;
    float g[kVector], v[kVector], dy[kVector];
    Load<Storage>(args.gv, at, g);
    Load<Storage>(args.gv, at + kWidth, v);
    Load<Storage>(args.dy, row * kWidth + column, dy);
    for (int i = 0; i < kVector; ++i) {
      const float sigmoid = SigmoidOf(g[i]), silu = g[i] * sigmoid;
      // silu' = sigmoid (1 + g (1 - sigmoid))
      g[i] = dy[i] * v[i] * (sigmoid + silu * SigmoidOf(-g[i]));
      v[i] = dy[i] * silu;
    }
    Store<Storage>(args.to, at, g);
    Store<Storage>(args.to, at + kWidth, v);
  }
}
