// Values from one storage to another.
//
// Constants: From, To, kVector, kThreads.

#include "backend/cuda/kernels/pointwise/values.cuh"

#include "backend/cuda/kernels/pointwise/arguments.cuh"

extern "C" __global__ void __launch_bounds__(kThreads) Cast(const __grid_constant__ CastArguments args) {
  WaitForKernelBefore();
  if (args.condition != nullptr && *args.condition == 0) return;
  const Index at = ((Index)blockIdx.x * kThreads + threadIdx.x) * kVector;
  if (at + kVector <= args.size) {
    float v[kVector];
    Load<From>(args.from, at, v);
    Store<To>(args.to, at, v);
  } else {
    for (Index i = at; i < args.size; ++i) StoreOne<To>(args.to, i, LoadOne<From>(args.from, i));
  }
}
