// y = x + dropout(branch), or dropout(branch) alone, which is also its gradient.
//
// Constants: Storage, kAdd (there is an x), kDropout, kVector, kThreads.

#include "backend/cuda/kernels/pointwise/values.cuh"

#include "backend/cuda/kernels/pointwise/arguments.cuh"

#include "backend/cuda/kernels/pointwise/dropout.cuh"

template <int kCount>
PENSTOCK_DEVICE void AddAt(const ResidualArguments& args, Index at) {
  float v[kCount], x[kCount];
  Load<Storage>(args.branch, at, v);
  if constexpr (kAdd) Load<Storage>(args.x, at, x);
  if constexpr (kDropout) {
    const Dropout dropout(args.dropout);
    for (int i = 0; i < kCount; ++i) v[i] = dropout.of(v[i], at + i);
  }
  if constexpr (kAdd) {
    for (int i = 0; i < kCount; ++i) v[i] += x[i];
  }
  Store<Storage>(args.y, at, v);
}

extern "C" __global__ void __launch_bounds__(kThreads) Residual(const __grid_constant__ ResidualArguments args) {
  WaitForKernelBefore();
  const Index at = ((Index)blockIdx.x * kThreads + threadIdx.x) * kVector;
  if (at + kVector <= args.size) return AddAt<kVector>(args, at);
  for (Index i = at; i < args.size; ++i) AddAt<1>(args, i);
}
