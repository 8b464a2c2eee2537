#include "ops/pointwise/residual_norm.h"

#include <algorithm>

#include "backend/cpu/element_kernels.h"
#include "ops/cuda/ops.h"
#include "ops/pointwise/elementwise.h"

namespace penstock::ops {

namespace {

template <class Real>
void forward(const ResidualNorm& shape, bool drops, const Call& call, const Operands& memory) {
  const Index width = shape.width;
  const auto* const x = memory.get<const Real>(NormOperand::x);
  const auto* const branch = memory.get<const Real>(NormOperand::branch);
  const auto* const gain = memory.get<const Real>(NormOperand::gain);
  auto* const normal = memory.get<Real>(NormOperand::normal);
  auto* const sum = memory.get<Real>(NormOperand::sum);
  auto* const inverse = memory.get<Real>(NormOperand::inverse);
  const DropoutFactors<Real> factors(shape.dropout, call);
  const cpu::ElementKernels<Real> kernels = cpu::element_kernels<Real>();
  for_range(call.threads, call.batch.rows * call.batch.steps, (drops ? 5 : 2) * width, [&](Index begin, Index end) {
    for (Index r = begin; r < end; ++r) {
      const Index first = r * width;
      const Real* row = x + first;
      if (branch != nullptr) {
        if (drops) {
          factors.for_each(first, first + width, [&](Index i, Real factor) { sum[i] = x[i] + factor * branch[i]; });
        } else {
          for (Index i = first; i < first + width; ++i) sum[i] = x[i] + branch[i];
        }
        row = sum + first;
      }
      const Real scale = kernels.rms_norm(width, Real(ResidualNorm::epsilon), row, gain, normal + first);
      if (inverse != nullptr) inverse[r] = scale;
    }
  });
}

template <class Real>
void backward(const ResidualNorm& shape, bool drops, const Call& call, const Operands& memory) {
  const Index width = shape.width, positions = call.batch.rows * call.batch.steps;
  const auto* const sum = memory.get<const Real>(NormBackwardOperand::sum);
  const auto* const inverse = memory.get<const Real>(NormBackwardOperand::inverse);
  const auto* const gain = memory.get<const Real>(NormBackwardOperand::gain);
  const auto* const dnormal = memory.get<const Real>(NormBackwardOperand::dnormal);
  const auto* const dsum = memory.get<const Real>(NormBackwardOperand::dsum);
  auto* const dgain = memory.get<Real>(NormBackwardOperand::dgain);
  auto* const dx = memory.get<Real>(NormBackwardOperand::dx);
  auto* const dbranch = memory.get<Real>(NormBackwardOperand::dbranch);
  const DropoutFactors<Real> factors(shape.dropout, call);
  const cpu::ElementKernels<Real> kernels = cpu::element_kernels<Real>();
  const Index parts = gradient_parts(positions);
  auto* const partial = static_cast<Real*>(memory.scratch);
  for_range(call.threads, parts, 2 * positions_per_part * width, [&](Index begin, Index end) {
    for (Index part = begin; part < end; ++part) {
      Real* const gain_sums = partial + part * width;
      std::fill_n(gain_sums, width, Real(0));
      for (Index r = part * positions_per_part; r < std::min(positions, (part + 1) * positions_per_part); ++r) {
        const Index first = r * width;
        kernels.rms_norm_backward(width, inverse[r], sum + first, gain, dnormal + first, dsum ? dsum + first : nullptr,
                                  gain_sums, dx + first);
        if (!drops) continue;
        factors.for_each(first, first + width, [&](Index i, Real factor) { dbranch[i] = factor * dx[i]; });
      }
    }
  });
  std::fill_n(dgain, width, Real(0));
  add_partial_sums(parts, width, partial, dgain);
  if (auto* const sums = memory.get<Real>(NormBackwardOperand::column_sums)) {
    column_sums(call.threads, positions, width, drops ? dbranch : dx, sums, partial);
  }
}

}  // namespace

Op residual_norm_forward(const ResidualNorm& shape) {
  return {.name = shape.branch ? "residual_norm" : "norm",
          .prepare =
              [shape](const Target& target) {
                if (target.device.is_cuda()) return cuda_residual_norm_forward(shape, target);
                return with_real(target.dtype, [&](auto real) {
                  return simple([shape, drops = shape.drops(target)](const Call& call, const Operands& memory) {
                    forward<decltype(real)>(shape, drops, call, memory);
                  });
                });
              },
          .definition = shape};
}

Op residual_norm_backward(const ResidualNorm& shape, bool wants_sums) {
  return {shape.branch ? "residual_norm.backward" : "norm.backward", [shape, wants_sums](const Target& target) {
            if (target.device.is_cuda()) return cuda_residual_norm_backward(shape, wants_sums, target);
            const auto scratch =
                static_cast<std::size_t>(gradient_parts(target.positions()) * shape.width) * size_of(target.dtype);
            return with_real(target.dtype, [&](auto real) {
              return simple(
                  [shape, drops = shape.drops(target)](const Call& call, const Operands& memory) {
                    backward<decltype(real)>(shape, drops, call, memory);
                  },
                  scratch);
            });
          }};
}

}  // namespace penstock::ops
