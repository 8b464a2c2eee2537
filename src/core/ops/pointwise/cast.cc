#include "ops/pointwise/cast.h"

#include "backend/cpu/element_kernels.h"
#include "base/check.h"
#include "ops/cuda/ops.h"
#include "ops/pointwise/elementwise.h"

namespace penstock::ops {
namespace {

template <class From, class To>
std::unique_ptr<Executable> cpu_cast(const CastShape& shape, const Target& target,
                                     void (*convert)(Index, const From*, To*)) {
  const SequenceStrides gapless{target.steps * shape.width, shape.width};
  const int threads = resolve_threads(target.execution.threads);
  if (!shape.per_position) {
    return simple([=](const Call&, const Operands& memory) {
      for_range(threads, shape.width, 1, [&](Index begin, Index end) {
        convert(end - begin, memory.get<const From>(UnaryOperand::x) + begin, memory.get<To>(UnaryOperand::y) + begin);
      });
    });
  }
  const SequenceStrides from = strides_or(shape.from_strides, gapless), to = strides_or(shape.to_strides, gapless);
  const Index positions = target.positions(), steps = target.packed > 0 ? positions : target.steps;
  return simple([=](const Call&, const Operands& memory) {
    for_range(threads, positions, shape.width, [&](Index begin, Index end) {
      for (Index i = begin; i < end; ++i) {
        const Index b = i / steps, t = i % steps;
        convert(shape.width, memory.get<const From>(UnaryOperand::x) + b * from.row + t * from.step,
                memory.get<To>(UnaryOperand::y) + b * to.row + t * to.step);
      }
    });
  });
}

}  // namespace

Op cast(const CastShape& shape, DType from, DType to) {
  return {"cast", [shape, from, to](const Target& target) {
            if (target.device.is_cuda()) return cuda_cast(shape, from, to, target);
            const cpu::ElementKernels<float> kernels = cpu::element_kernels<float>();
            if (from == DType::bf16 && to == DType::f32) return cpu_cast(shape, target, kernels.from_bf16);
            require(from == DType::f32 && to == DType::bf16, "a CPU casts f32 to bf16 and back, not {} to {}",
                    to_string(from), to_string(to));
            return cpu_cast(shape, target, kernels.to_bf16);
          }};
}

}  // namespace penstock::ops
