// The kernel between the gradients of a training step and the optimiser.

#include "backend/cuda/kernels/pointwise/training/step_rules.cuh"

extern "C" __global__ void Decide(const __grid_constant__ TrainingStepArguments args) {
  WaitForKernelBefore();
  DecideStep(*args.state, args.rules);
}
