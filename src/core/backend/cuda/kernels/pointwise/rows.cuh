// Rows of kWidth values, each shared by a group of neighbouring threads.
//
// Constants of the plan: kWidth, kThreads (of a block), kGroup (threads of a row, a power of two), kVector
// (neighbouring values of a thread), kSteps (such vectors of a thread), kHeld (they fit its registers).

#include "backend/cuda/kernels/pointwise/values.cuh"

constexpr int kRowsOfBlock = kThreads / kGroup;
static_assert(kThreads % kGroup == 0 && kThreads <= 1024 && kSteps * kGroup * kVector >= kWidth);
static_assert(!kHeld || kSteps * kVector <= 32, "held rows fit the registers");

/// The first column of a thread's vector of that number; kWidth or more: there is none.
PENSTOCK_DEVICE int ColumnOf(int step) { return (step * kGroup + threadIdx.x % kGroup) * kVector; }

/// Returns whether the row has this column. (A constant, if the threads of a row share it without rest.)
PENSTOCK_DEVICE bool IsColumn(int column) { return kSteps * kGroup * kVector == kWidth || column < kWidth; }

/// Combines what the threads of a row have, so that all of them get it, in a fixed order. Every thread of the block
/// must come here.
template <class T, class Combine>
PENSTOCK_DEVICE T OfGroup(T x, Combine combine) {
#pragma unroll
  for (int apart = 1; apart < (kGroup < 32 ? kGroup : 32); apart *= 2) {
    x = combine(x, __shfl_xor_sync(0xffffffffu, x, apart));
  }
  if constexpr (kGroup > 32) {
    constexpr int warps = kGroup / 32;
    __shared__ T part[kThreads / 32];
    __syncthreads();  // the one before has been read
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
    __syncthreads();
    const int first = threadIdx.x / kGroup * warps;
    x = part[first];
    for (int i = 1; i < warps; ++i) x = combine(x, part[first + i]);
  }
  return x;
}

PENSTOCK_DEVICE float SumOfGroup(float x) {
  return OfGroup(x, [](float a, float b) { return a + b; });
}
PENSTOCK_DEVICE float MaxOfGroup(float x) {
  return OfGroup(x, [](float a, float b) { return fmaxf(a, b); });
}
