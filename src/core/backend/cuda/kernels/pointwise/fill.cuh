// Sets all values.
//
// Constants: Storage, kVector, kThreads.

#include "backend/cuda/kernels/pointwise/values.cuh"

#include "backend/cuda/kernels/pointwise/arguments.cuh"

extern "C" __global__ void __launch_bounds__(kThreads) Fill(const __grid_constant__ FillArguments args) {
  WaitForKernelBefore();
  const Index at = ((Index)blockIdx.x * kThreads + threadIdx.x) * kVector;
  if (at + kVector <= args.size) {
    float v[kVector];
    for (int i = 0; i < kVector; ++i) v[i] = args.value;
    Store<Storage>(args.to, at, v);
  } else {
    for (Index i = at; i < args.size; ++i) StoreOne<Storage>(args.to, i, args.value);
  }
}
