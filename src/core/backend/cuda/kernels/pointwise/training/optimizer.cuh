// One update of a flat store of parameters, a block a range: AdamW, or SGD with momentum, as the state of the step
// says. The weights go to a copy in another storage as well.
//
// Constants: Storage and kCopy (of the copy), kAdam, kVector, kThreads.

#include "backend/cuda/kernels/pointwise/values.cuh"

#include "backend/cuda/kernels/pointwise/arguments.cuh"

template <int kCount>
PENSTOCK_DEVICE void UpdateAt(const OptimizerArguments& args, const StepState& state, float keep, Index at) {
  float value[kCount], gradient[kCount], first[kCount];
  Load<F32>(args.values, at, value);
  Load<F32>(args.gradients, at, gradient);
  Load<F32>(args.first, at, first);
  if constexpr (kAdam) {
    float second[kCount];
    Load<F32>(args.second, at, second);
    for (int i = 0; i < kCount; ++i) {
      const float g = gradient[i] * state.gradient_factor;
      first[i] = args.beta1 * first[i] + args.rest1 * g;
      second[i] = args.beta2 * second[i] + args.rest2 * g * g;
      const float root = __fsqrt_rn(second[i]) * state.root_correction + args.epsilon;
      value[i] = keep * value[i] - __fdiv_rn(state.rate * first[i], root);
    }
    Store<F32>(args.second, at, second);
  } else {
    for (int i = 0; i < kCount; ++i) {
      first[i] = args.beta1 * first[i] + gradient[i] * state.gradient_factor;
      value[i] = keep * value[i] - state.rate * first[i];
    }
  }
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
