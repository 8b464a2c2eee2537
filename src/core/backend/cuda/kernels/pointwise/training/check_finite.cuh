// Sets a bit of the flags if a value is not finite.
//
// Constants: Storage, kVector, kThreads.

#include "backend/cuda/kernels/pointwise/values.cuh"

#include "backend/cuda/kernels/pointwise/arguments.cuh"

template <int kCount>
PENSTOCK_DEVICE bool BrokenAt(const FiniteArguments& args, Index at) {
  float v[kCount];
  bool broken = false;
  Load<Storage>(args.values, at, v);
  for (int i = 0; i < kCount; ++i) broken |= !Finite(v[i]);
  return broken;
}

extern "C" __global__ void __launch_bounds__(kThreads) CheckFinite(const __grid_constant__ FiniteArguments args) {
  WaitForKernelBefore();
  bool broken = false;
  const Index stride = (Index)gridDim.x * kThreads * kVector;
#pragma unroll 2
  for (Index at = ((Index)blockIdx.x * kThreads + threadIdx.x) * kVector; at < args.size; at += stride) {
    if (at + kVector <= args.size) {
      broken |= BrokenAt<kVector>(args, at);
    } else {
      for (Index i = at; i < args.size; ++i) broken |= BrokenAt<1>(args, i);
    }
  }
  if (broken) atomicOr(args.flags, args.bit);
}
