// Joins the pieces of chains (diagonal_forward.cuh): one thread has a chain, and goes from piece to piece. With what
// leaves piece i for the guess g_i, F_i, and its Jacobian J_i, the states that enter the next piece are
// F_i + J_i (s_i - g_i), where s_i are those that enter this one: Newton's step for all pieces at once.

#include "backend/cuda/kernels/dense/pass.h"
PENSTOCK_PASS(DiagonalJoin)

#include "backend/cuda/kernels/dense/arguments.h"

constexpr int kStates = kPass.states, kThreads = kPass.threads, kBatch = kPass.batch;

/// From Blackwell on, the compiler keeps the address of each value in registers, too.
#if __CUDA_ARCH__ >= 1000
constexpr int kAtOnce = kBatch * 3 / 4;
#else
constexpr int kAtOnce = kBatch;
#endif

/// Largest difference between two pieces' values of a state, relative to its size or to 1: a few roundings of one run.
constexpr float kAgree = 4.0f * 1.1920929e-7f;

struct OfPiece {
  float leaving[kStates], jacobian[kStates * kStates];
  float next[kStates];  // the guess of what enters the next piece

  __device__ __forceinline__ void load(const DenseDiagonalForwardArguments& args, int piece, Index chain,
                                       Index chains) {
#pragma unroll
    for (int k = 0; k < kStates; ++k) {
      leaving[k] = args.leaving[((Index)piece * kStates + k) * chains + chain];
      next[k] = args.entering[((Index)(piece + 1) * kStates + k) * chains + chain];
    }
#pragma unroll
    for (int k = 0; k < kStates * kStates; ++k) {
      jacobian[k] = args.jacobian[((Index)piece * kStates * kStates + k) * chains + chain];
    }
  }
};

PENSTOCK_DEVICE bool IsNumber(float x) { return fabsf(x) <= 3.402823466e38f; }

extern "C" __global__ void __launch_bounds__(kThreads)
    DenseDiagonalJoin(const __grid_constant__ DenseDiagonalForwardArguments args) {
  const Index chain = (Index)blockIdx.x * kThreads + threadIdx.x;
  const Index chains = (Index)args.call.rows.rows * args.call.hidden;
  if (chain >= chains) return;
  if (args.iteration > 1 && args.iterations[chain] != 0) return;
  float state[kStates], guess[kStates];
#pragma unroll
  for (int k = 0; k < kStates; ++k) state[k] = guess[k] = args.entering[(Index)k * chains + chain];
  bool joined = true;
  for (int first = 0; first < args.pieces - 1; first += kAtOnce) {
    OfPiece batch[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i < args.pieces - 1) batch[i].load(args, first + i, chain, chains);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i >= args.pieces - 1) break;
      const OfPiece& of = batch[i];
      float changed[kStates];
#pragma unroll
      for (int k = 0; k < kStates; ++k) changed[k] = state[k] - guess[k];
#pragma unroll
      for (int k = 0; k < kStates; ++k) {
        const float gap = fabsf(of.leaving[k] - of.next[k]);
        joined = joined && gap <= kAgree * fmaxf(1.0f, fabsf(of.leaving[k]));
        float better = of.leaving[k];
#pragma unroll
        for (int j = 0; j < kStates; ++j) better = __fmaf_rn(of.jacobian[k * kStates + j], changed[j], better);
        state[k] = IsNumber(better) ? better : of.leaving[k];
        guess[k] = of.next[k];
        args.entering[((Index)(first + i + 1) * kStates + k) * chains + chain] = state[k];
      }
    }
  }
  // The first run of the pieces has written nothing.
  const bool done = joined && args.iteration > 1;
  args.iterations[chain] = done ? args.iteration : 0;
  if (!done || args.call.state_out == nullptr) return;
#pragma unroll
  for (int k = 0; k < kStates; ++k) {
    args.call.state_out[k * chains + chain] = args.leaving[((Index)(args.pieces - 1) * kStates + k) * chains + chain];
  }
}
