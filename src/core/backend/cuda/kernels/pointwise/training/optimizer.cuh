// One update of a flat store of parameters, a block a range, as the state of the step says. The weights go to a copy in
// another storage as well.
//
// Constants: Storage and kCopy (of the copy), kVector, kThreads. Rule: one of optimizers.h.

#include "backend/cuda/kernels/pointwise/values.cuh"

#include "backend/cuda/kernels/pointwise/arguments.cuh"

PENSTOCK_DEVICE float StepSqrt(float x) { return __fsqrt_rn(x); }
PENSTOCK_DEVICE float StepDivide(float a, float b) { return __fdiv_rn(a, b); }
PENSTOCK_DEVICE float StepSign(float x) { return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : 0.0f; }

#define PENSTOCK_STEP PENSTOCK_DEVICE
#include "base/training/optimizers.h"

template <int kCount>
PENSTOCK_DEVICE void UpdateAt(const OptimizerArguments& args, const StepState& state, float keep, Index at) {
  float value[kCount], gradient[kCount], first[kCount], second[kCount];
  Load<F32>(args.values, at, value);
  Load<F32>(args.gradients, at, gradient);
  Load<F32>(args.first, at, first);
  if constexpr (Rule::kMoments > 1) Load<F32>(args.second, at, second);
  for (int i = 0; i < kCount; ++i) Rule::Update(args, state, keep, gradient[i], value[i], first[i], second[i]);
  if constexpr (Rule::kMoments > 1) Store<F32>(args.second, at, second);
  Store<F32>(args.first, at, first);
  Store<F32>(args.values, at, value);
  if constexpr (kCopy) Store<Storage>(args.copy, at, value);
}

extern "C" __global__ void __launch_bounds__(kThreads) Optimize(const __grid_constant__ OptimizerArguments args) {
  WaitForKernelBefore();
  const StepState& state = *args.state;
  if (state.apply == 0) return;
  const OptimizerRange range = args.ranges[blockIdx.x];
  const float keep = range.decay != 0 ? state.decay_factor : 1.0f;
#pragma unroll 2
  for (int i = threadIdx.x * kVector; i + kVector <= range.count; i += kThreads * kVector) {
    UpdateAt<kVector>(args, state, keep, range.begin + i);
  }
  const int rest = range.count / kVector * kVector + threadIdx.x;
  if (rest < range.count) UpdateAt<1>(args, state, keep, range.begin + rest);
}
