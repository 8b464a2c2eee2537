// Passes gradients from the last piece of each chain to the first (diagonal_backward.cuh): those that enter a piece
// take the place of those that leave it if none enter.

#include "backend/cuda/kernels/dense/pass.h"
PENSTOCK_PASS(DiagonalJoin)

#include "backend/cuda/kernels/dense/arguments.h"

constexpr int kStates = kPass.states, kThreads = kPass.threads, kBatch = kPass.batch;

struct OfPiece {
  float offset[kStates], gain[kStates * kStates];

  __device__ __forceinline__ void load(const DenseDiagonalBackwardArguments& args, int piece, Index chain,
                                       Index chains) {
#pragma unroll
    for (int k = 0; k < kStates; ++k) offset[k] = args.carry[((Index)piece * kStates + k) * chains + chain];
#pragma unroll
    for (int k = 0; k < kStates * kStates; ++k) {
      gain[k] = args.gain[((Index)piece * kStates * kStates + k) * chains + chain];
    }
  }
};

extern "C" __global__ void __launch_bounds__(kThreads)
    DenseDiagonalPass(const __grid_constant__ DenseDiagonalBackwardArguments args) {
  const Index chain = (Index)blockIdx.x * kThreads + threadIdx.x;
  const Index chains = (Index)args.call.rows.rows * args.call.hidden;
  if (chain >= chains) return;
  float carry[kStates];
#pragma unroll
  for (int k = 0; k < kStates; ++k) {
    carry[k] = args.call.dstate_out != nullptr ? args.call.dstate_out[k * chains + chain] : 0.0f;
  }
  for (int last = args.pieces - 1; last >= 0; last -= kBatch) {
    OfPiece batch[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (last - i >= 0) batch[i].load(args, last - i, chain, chains);
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (last - i < 0) break;
      float before[kStates];
#pragma unroll
      for (int k = 0; k < kStates; ++k) {
        args.carry[((Index)(last - i) * kStates + k) * chains + chain] = carry[k];
        before[k] = batch[i].offset[k];
#pragma unroll
        for (int j = 0; j < kStates; ++j) before[k] = __fmaf_rn(batch[i].gain[k * kStates + j], carry[j], before[k]);
      }
#pragma unroll
      for (int k = 0; k < kStates; ++k) carry[k] = before[k];
    }
  }
}
