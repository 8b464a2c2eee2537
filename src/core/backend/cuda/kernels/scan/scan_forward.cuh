// y_t = a_t y_{t-1} + b_t, where a rule (a scan cell, or the terms as they are given) makes a and b of the values of a
// step. in[g] is value g, out[0] is y, each [B, T, C]; y may be any of the inputs.

#include "backend/cuda/kernels/cells.cuh"
#include "backend/cuda/kernels/scan/run.cuh"

constexpr bool kKeepTerms = kPass.keep_terms;
#include "backend/cuda/kernels/scan/forward_op.cuh"

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks)
    ScanForward(const __grid_constant__ ScanArguments args) {
  WaitForKernelBefore();
  Run<ForwardOp>(args);
}
