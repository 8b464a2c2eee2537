#include "ops/pointwise/sample.h"

#include "backend/cuda/pointwise/sample.h"
#include "ops/cuda/common.h"
#include "ops/cuda/ops.h"

namespace penstock::ops {

Prepared cuda_sample(const Sample& shape, const Target& target) {
  const cuda::SampleExecutable kernel(gpu_of(target), {.streams = target.rows,
                                                       .classes = shape.classes,
                                                       .logits = plan::Storage::f32,
                                                       .temperature = shape.sampling.temperature,
                                                       .top_k = shape.sampling.top_k,
                                                       .top_p = shape.sampling.top_p});
  return simple(
      [kernel, shape](const Call& call, const Operands& memory) {
        kernel.run({.logits = address_of(memory, SampleOperand::logits),
                    .logits_stride = shape.classes,
                    .keys = address_of(memory, SampleOperand::keys),
                    .counters = address_of(memory, SampleOperand::counters),
                    .tokens = address_of(memory, SampleOperand::tokens),
                    .history = address_of(memory, SampleOperand::history),
                    .history_length = shape.history},
                   address_of(memory.scratch), stream_of(call));
      },
      kernel.workspace_bytes());
}

}  // namespace penstock::ops
