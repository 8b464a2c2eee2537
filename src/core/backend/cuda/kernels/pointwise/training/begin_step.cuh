// The first kernel of a training step. Rule: one of schedules.h.

#include "backend/cuda/kernels/pointwise/training/step_rules.cuh"

extern "C" __global__ void BeginStep(const __grid_constant__ TrainingStepArguments args) {
  WaitForKernelBefore();
  BeginStepOf<Rule>(*args.state, args.rules, args.time_fraction == nullptr ? 0.0 : *args.time_fraction);
}
