#include <algorithm>

#include "backend/cpu/element_kernels.h"
#include "ops/cuda/ops.h"
#include "ops/pointwise/elementwise.h"
#include "ops/training/on_cpu.h"
#include "ops/training/training.h"

namespace penstock::ops {
namespace {

constexpr Index values_per_range = 16384;

/// The store in pieces for the threads.
std::vector<StoredTensor> pieces_of(const std::vector<StoredTensor>& tensors) {
  std::vector<StoredTensor> pieces;
  for (const StoredTensor& tensor : tensors) {
    for (Index begin = 0; begin < tensor.size; begin += values_per_range) {
      pieces.push_back({tensor.offset + begin, std::min(values_per_range, tensor.size - begin), tensor.decay});
    }
  }
  return pieces;
}

void run_optimizer(const OptimizerShape& shape, const std::vector<StoredTensor>& pieces, const Call& call,
                   const Operands& memory) {
  const auto* const gradients = memory.get<const float>(OptimizerOperand::gradients);
  const StepState& state = *memory.get<const StepState>(OptimizerOperand::state);
  if (state.apply == 0) return;
  auto* const values = memory.get<float>(OptimizerOperand::values);
  auto* const first = memory.get<float>(OptimizerOperand::first);
  auto* const second = memory.get<float>(OptimizerOperand::second);
  const auto beta1 = static_cast<float>(shape.beta1), beta2 = static_cast<float>(shape.beta2);
  const cpu::OptimizerCoefficients args{.beta1 = beta1,
                                        .rest1 = static_cast<float>(1.0 - shape.beta1),
                                        .beta2 = beta2,
                                        .rest2 = static_cast<float>(1.0 - shape.beta2),
                                        .epsilon = static_cast<float>(shape.epsilon)};
  const cpu::UpdateKernel update = cpu::element_kernels<float>().update(shape.kind);
  Index numbers = 0;
  for (const StoredTensor& piece : pieces) numbers += piece.size;
  constexpr Index arrays = 4;  // that a step reads
  const int threads = threads_for(call.threads, arrays * numbers);
  parallel_for(threads, static_cast<Index>(pieces.size()), 2, [&](Index from, Index to) {
    for (Index i = from; i < to; ++i) {
      const StoredTensor& piece = pieces[static_cast<std::size_t>(i)];
      const Index at = piece.offset;
      update(args, state, piece.decay ? state.decay_factor : 1.0f, piece.size, gradients + at, values + at, first + at,
             second == nullptr ? nullptr : second + at);
    }
  });
}

}  // namespace

Op optimizer(const OptimizerShape& shape) {
  return {"optimizer",
          trained_by(shape, cuda_optimizer, [pieces = pieces_of(shape.tensors)](const auto& of, const auto&... given) {
            run_optimizer(of, pieces, given...);
          })};
}

}  // namespace penstock::ops
