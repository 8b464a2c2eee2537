// Runs an op over [B, T, C] by the plan's algorithm. An op says what is loaded at a step, what the step does to a
// state, and what is stored.
//
// Constants: kDirect, and of what is direct kCorrects; those of walk.cuh, direct.cuh and scan.cuh.

#include "backend/cuda/kernels/scan/walk.cuh"

#include "backend/cuda/kernels/scan/direct.cuh"
#include "backend/cuda/kernels/scan/scan.cuh"

static_assert(!kDirect || kSharedBytes == 0, "threads that walk by themselves share nothing");
static_assert(kDirect || !kCorrects, "threads stop by themselves");

template <class Op>
PENSTOCK_DEVICE void Run(const ScanArguments& args) {
  if constexpr (kDirect) {
    RunDirect<Op>(args);
  } else {
    RunScan<Op>(args);
  }
}
