#include "ops/pointwise/dropout.h"

#include "ops/cuda/ops.h"
#include "ops/pointwise/elementwise.h"

namespace penstock::ops {

namespace {

template <class Real>
void drop_values(const Dropout& shape, Index count, const Call& call, const Operands& memory) {
  const auto* const x = memory.get<const Real>(UnaryOperand::x);
  auto* const y = memory.get<Real>(UnaryOperand::y);
  const DropoutFactors<Real> factors(shape, call);
  for_range(call.threads, count, 4, [&](Index begin, Index end) {
    factors.for_each(begin, end, [&](Index i, Real factor) { y[i] = factor * x[i]; });
  });
}

template <class Real>
void add_branch(const Dropout& shape, bool drops, Index count, const Call& call, const Operands& memory) {
  const auto* const x = memory.get<const Real>(ResidualSumOperand::x);
  const auto* const branch = memory.get<const Real>(ResidualSumOperand::branch);
  auto* const sum = memory.get<Real>(ResidualSumOperand::sum);
  const DropoutFactors<Real> factors(shape, call);
  for_range(call.threads, count, drops ? 4 : 1, [&](Index begin, Index end) {
    if (drops) {
      factors.for_each(begin, end, [&](Index i, Real factor) { sum[i] = x[i] + factor * branch[i]; });
    } else {
      for (Index i = begin; i < end; ++i) sum[i] = x[i] + branch[i];
    }
  });
}

}  // namespace

Op dropout(Index width, const Dropout& shape) {
  return {"dropout", [width, shape](const Target& target) {
            if (target.device.is_cuda()) return cuda_dropout(width, shape, target);
            const Index count = target.positions() * width;
            return with_real(target.dtype, [&](auto real) {
              return simple([shape, count](const Call& call, const Operands& memory) {
                drop_values<decltype(real)>(shape, count, call, memory);
              });
            });
          }};
}

Op residual_sum(Index width, const Dropout& shape) {
  return {.name = "residual_sum",
          .prepare =
              [width, shape](const Target& target) {
                const bool drops = target.has(CallFlag::training) && shape.probability > 0.0;
                if (target.device.is_cuda()) return cuda_residual_sum(width, drops ? shape : Dropout{}, target);
                const Index count = target.positions() * width;
                return with_real(target.dtype, [&](auto real) {
                  return simple([shape, drops, count](const Call& call, const Operands& memory) {
                    add_branch<decltype(real)>(shape, drops, count, call, memory);
                  });
                });
              },
          .definition = ResidualSum{width}};
}

}  // namespace penstock::ops
