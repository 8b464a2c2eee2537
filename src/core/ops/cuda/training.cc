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
      [kernel = cuda::TrainingStepExecutable(gpu_of(target), rules)](const Call& call, const Operands& memory) {
        kernel.begin(address_of(memory, BeginStepOperand::state), address_of(memory, BeginStepOperand::time_fraction),
                     stream_of(call));
      });
}

Prepared cuda_loss(const LossShape& shape, const Target& target) {
  if (is_sound_loss(shape.kind)) fail(ErrorCode::unsupported, "losses of sound are computed on CPUs only");
  const cuda::LossExecutable kernel(gpu_of(target), {.kind = shape.kind,
                                                     .rows = target.positions(),
                                                     .width = shape.width,
                                                     .outputs = storage_of(shape.outputs),
                                                     .gradients = storage_of(target.dtype),
                                                     .gradient = shape.gradient});
  return simple(
      [kernel](const Call& call, const Operands& memory) {
        const cuda::DeviceAddress state = address_of(memory, LossOperand::state);
        kernel.run({.y = address_of(memory, LossOperand::outputs),
                    .labels = address_of(memory, LossOperand::labels),
                    .targets = address_of(memory, LossOperand::targets),
                    .weights = address_of(memory, LossOperand::weights),
                    .gradient = address_of(memory, LossOperand::doutputs),
                    .loss_scale = cuda::device_member(state, &StepState::loss_scale),
                    .sums = cuda::device_member(state, &StepState::loss)},
                   address_of(memory.scratch), stream_of(call));
      },
      kernel.workspace_bytes());
}

Prepared cuda_check_finite(Index width, const Target& target) {
  const cuda::CheckFiniteExecutable kernel(gpu_of(target), target.rows * width, plan::Storage::f32);
  return simple([kernel](const Call& call, const Operands& memory) {
    kernel.run(address_of(memory, CheckFiniteOperand::values),
               cuda::device_member(address_of(memory, CheckFiniteOperand::state), &StepState::broken), kBrokenOutput,
               stream_of(call));
  });
}

Prepared cuda_sum_squares(Index size, const SquareRanges& ranges, const Target& target) {
  const cuda::SumSquaresExecutable kernel(gpu_of(target), size, ranges);
  return simple(
      [kernel](const Call& call, const Operands& memory) {
        kernel.run(address_of(memory, SumSquaresOperand::gradients),
                   cuda::device_member(address_of(memory, SumSquaresOperand::state), &StepState::gradient_squares),
                   address_of(memory.scratch), stream_of(call));
      },
      kernel.workspace_bytes());
}

Prepared cuda_decide(const StepRules& rules, const Target& target) {
  return simple(
      [kernel = cuda::TrainingStepExecutable(gpu_of(target), rules)](const Call& call, const Operands& memory) {
        kernel.decide(address_of(memory, DecideOperand::state), stream_of(call));
      });
}

Prepared cuda_optimizer(const OptimizerShape& shape, const Target& target) {
  std::vector<cuda::OptimizerTensor> tensors;
  tensors.reserve(shape.tensors.size());
  for (const StoredTensor& tensor : shape.tensors) tensors.push_back({tensor.offset, tensor.size, tensor.decay});
  const bool copy = target.dtype != target.master();
  const cuda::OptimizerExecutable kernel(gpu_of(target),
                                         {.kind = shape.kind,
                                          .beta1 = shape.beta1,
                                          .beta2 = shape.beta2,
                                          .epsilon = shape.epsilon,
                                          .copy = copy,
                                          .storage = copy ? storage_of(target.dtype) : plan::Storage::bf16},
                                         tensors);
  return simple([kernel, ranges = Uploaded(gpu_of(target), kernel.ranges())](const Call& call, const Operands& memory) {
    kernel.run({.state = address_of(memory, OptimizerOperand::state),
                .ranges = ranges.address(),
                .gradients = address_of(memory, OptimizerOperand::gradients),
                .values = address_of(memory, OptimizerOperand::values),
                .first = address_of(memory, OptimizerOperand::first),
                .second = address_of(memory, OptimizerOperand::second),
                .copy = address_of(memory, OptimizerOperand::copy)},
               stream_of(call));
  });
}

Prepared cuda_keep_state(Index width, const Target& target) {
  const Index size = target.rows * width;
  return simple([kernel = cuda::CastExecutable(gpu_of(target), size, plan::Storage::f32, plan::Storage::f32)](
                    const Call& call, const Operands& memory) {
    kernel.run(address_of(memory, KeepStateOperand::from), address_of(memory, KeepStateOperand::to),
               cuda::device_member(address_of(memory, KeepStateOperand::state), &StepState::keep), stream_of(call));
  });
}

Prepared cuda_saturation(Index width, const Target& target) {
  // One position of 32: this must cost nothing beside a step.
  constexpr Index apart = 32;
  const Index rows = (target.positions() + apart - 1) / apart;
  const cuda::SaturationExecutable kernel(gpu_of(target), rows, width, apart * width, storage_of(target.dtype));
  return simple([kernel](const Call& call, const Operands& memory) {
    kernel.run(address_of(memory, UnaryOperand::x), address_of(memory, UnaryOperand::y), stream_of(call));
  });
}

}  // namespace penstock::ops
