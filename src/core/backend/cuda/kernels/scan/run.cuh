// Runs an op over [B, T, C] by the plan's algorithm. An op says what is loaded at a step, what the step does to a
// state, and what is stored.

#include "backend/cuda/kernels/scan/pass.h"
PENSTOCK_PASS(ScanPass)

#include "backend/cuda/kernels/scan/span.cuh"

constexpr bool kDirect = kPass.direct, kCorrects = kPass.corrects;
constexpr int kPiece = kPass.piece, kWindow = kPass.window, kBlocks = kPass.blocks, kSharedBytes = kPass.shared_bytes;

#include "backend/cuda/kernels/scan/direct.cuh"
#include "backend/cuda/kernels/scan/scan.cuh"

static_assert(!kDirect || kSharedBytes == 0, "threads that run by themselves share nothing");
static_assert(kDirect || !kCorrects, "threads stop by themselves");

template <class Op>
PENSTOCK_DEVICE void Run(const ScanArguments& args) {
  if constexpr (kDirect) {
    RunDirect<Op>(args);
  } else {
    RunScan<Op>(args);
  }
}
