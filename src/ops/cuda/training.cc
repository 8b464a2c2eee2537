// The ops of a training step on a GPU.

#include "backend/cuda/pointwise/copy.h"
#include "backend/cuda/pointwise/loss.h"
#include "backend/cuda/pointwise/optimizer.h"
#include "backend/cuda/pointwise/saturation.h"
#include "ops/cuda/common.h"
#include "ops/cuda/ops.h"
#include "ops/cuda/uploaded.h"

namespace penstock::ops {

Prepared cuda_begin_step(const StepRules& rules, const Target& target) {
  return simple(
      [kernel = cuda::TrainingStepExecutable(gpu_of(target)), rules](const Call& call, const Operands& memory) {
        kernel.begin(rules, address_of(memory, 2), address_of(memory, 0), stream_of(call));
      });
}

Prepared cuda_loss(const LossShape& shape, const Target& target) {
  const cuda::LossExecutable kernel(gpu_of(target), {.kind = shape.kind,
                                                     .rows = target.positions(),
                                                     .width = shape.width,
                                                     .outputs = storage_of(shape.outputs),
                                                     .gradients = storage_of(target.dtype),
                                                     .gradient = shape.gradient});
  return simple(
      [kernel](const Call& call, const Operands& memory) {
        const cuda::DeviceAddress state = address_of(memory, 5);
        kernel.run({.y = address_of(memory, 0),
                    .labels = address_of(memory, 1),
                    .targets = address_of(memory, 2),
                    .weights = address_of(memory, 3),
                    .gradient = address_of(memory, 4),
                    .loss_scale = cuda::device_member(state, &StepState::loss_scale),
                    .sums = cuda::device_member(state, &StepState::loss)},
                   address_of(memory.scratch), stream_of(call));
      },
      kernel.workspace_bytes());
}

Prepared cuda_check_finite(Index width, const Target& target) {
  const cuda::CheckFiniteExecutable kernel(gpu_of(target), target.rows * width, plan::Storage::f32);
  return simple([kernel](const Call& call, const Operands& memory) {
    kernel.run(address_of(memory, 0), cuda::device_member(address_of(memory, 1), &StepState::broken),
               cuda::kBrokenOutput, stream_of(call));
  });
}

Prepared cuda_sum_squares(Index size, const SquareRanges& ranges, const Target& target) {
  const cuda::SumSquaresExecutable kernel(gpu_of(target), size, ranges);
  return simple(
      [kernel](const Call& call, const Operands& memory) {
        kernel.run(address_of(memory, 0), cuda::device_member(address_of(memory, 1), &StepState::gradient_squares),
                   address_of(memory.scratch), stream_of(call));
      },
      kernel.workspace_bytes());
}

Prepared cuda_decide(const StepRules& rules, const Target& target) {
  return simple(
      [kernel = cuda::TrainingStepExecutable(gpu_of(target)), rules](const Call& call, const Operands& memory) {
        kernel.decide(rules, address_of(memory, 1), stream_of(call));
      });
}

Prepared cuda_optimizer(const OptimizerShape& shape, const Target& target) {
  std::vector<cuda::OptimizerTensor> tensors;
  tensors.reserve(shape.tensors.size());
  for (const StoredTensor& tensor : shape.tensors) tensors.push_back({tensor.offset, tensor.size, tensor.decay});
  const bool copy = target.dtype != target.master();
  const cuda::OptimizerExecutable kernel(gpu_of(target),
                                         {.adam = shape.adam,
                                          .beta1 = shape.beta1,
                                          .beta2 = shape.beta2,
                                          .epsilon = shape.epsilon,
                                          .copy = copy,
                                          .storage = copy ? storage_of(target.dtype) : plan::Storage::bf16},
                                         tensors);
  return simple([kernel, ranges = Uploaded(gpu_of(target), kernel.ranges())](const Call& call, const Operands& memory) {
    kernel.run({.state = address_of(memory, 1),
                .ranges = ranges.address(),
                .gradients = address_of(memory, 0),
                .values = address_of(memory, 5),
                .first = address_of(memory, 6),
                .second = address_of(memory, 7),
                .copy = address_of(memory, 8)},
               stream_of(call));
  });
}

Prepared cuda_keep_state(Index width, const Target& target) {
  const Index size = target.rows * width;
  return simple([kernel = cuda::CastExecutable(gpu_of(target), size, plan::Storage::f32, plan::Storage::f32)](
                    const Call& call, const Operands& memory) {
    kernel.run(address_of(memory, 0), address_of(memory, 2),
               cuda::device_member(address_of(memory, 1), &StepState::keep), stream_of(call));
  });
}

Prepared cuda_saturation(Index width, const Target& target) {
  // One position of 32: this must cost nothing beside a step.
  constexpr Index apart = 32;
  const Index rows = (target.positions() + apart - 1) / apart;
  const cuda::SaturationExecutable kernel(gpu_of(target), rows, width, apart * width, storage_of(target.dtype));
  return simple([kernel](const Call& call, const Operands& memory) {
    kernel.run(address_of(memory, 0), address_of(memory, 1), stream_of(call));
  });
}

}  // namespace penstock::ops
