#include "ops/pointwise/silu_gate.h"

#include "backend/cpu/element_kernels.h"
#include "ops/cuda/ops.h"
#include "ops/pointwise/elementwise.h"

namespace penstock::ops {

namespace {

template <class Real>
std::unique_ptr<Executable> forward(const SiluGate& shape) {
  return simple(
      [inner = shape.inner, kernels = cpu::element_kernels<Real>()](const Call& call, const Operands& memory) {
        const auto* const gate_value = memory.get<const Real>(UnaryOperand::x);
        auto* const y = memory.get<Real>(UnaryOperand::y);
        for_range(call.threads, call.batch.rows * call.batch.steps, 8 * inner, [&](Index begin, Index end) {
          for (Index r = begin; r < end; ++r) kernels.silu_gate(inner, gate_value + 2 * r * inner, y + r * inner);
        });
      });
}

template <class Real>
std::unique_ptr<Executable> backward(const SiluGate& shape, bool wants_sums, const Target& target) {
  const Index parts = wants_sums ? gradient_parts(target.positions()) : 0;
  return simple(
      [inner = shape.inner, kernels = cpu::element_kernels<Real>()](const Call& call, const Operands& memory) {
        const auto* const gate_value = memory.get<const Real>(SiluGateBackwardOperand::x);
        const auto* const dy = memory.get<const Real>(SiluGateBackwardOperand::dy);
        auto* const d = memory.get<Real>(SiluGateBackwardOperand::dx);
        for_range(call.threads, call.batch.rows * call.batch.steps, 8 * inner, [&](Index begin, Index end) {
          for (Index r = begin; r < end; ++r) {
            kernels.silu_gate_backward(inner, gate_value + 2 * r * inner, dy + r * inner, d + 2 * r * inner);
          }
        });
        if (auto* const sums = memory.get<Real>(SiluGateBackwardOperand::column_sums)) {
          column_sums(call.threads, call.batch.rows * call.batch.steps, 2 * inner, d, sums,
                      static_cast<Real*>(memory.scratch));
        }
      },
      static_cast<std::size_t>(parts * 2 * shape.inner) * sizeof(Real));
}

}  // namespace

Op silu_gate_forward(const SiluGate& shape) {
  return {.name = "silu_gate",
          .prepare =
              [shape](const Target& target) {
                if (target.device.is_cuda()) return cuda_silu_gate_forward(shape, target);
                return with_real(target.dtype, [&](auto real) { return forward<decltype(real)>(shape); });
              },
          .definition = shape};
}

Op silu_gate_backward(const SiluGate& shape, bool wants_sums) {
  return {"silu_gate.backward", [shape, wants_sums](const Target& target) {
            if (target.device.is_cuda()) return cuda_silu_gate_backward(shape, wants_sums, target);
            return with_real(target.dtype,
                             [&](auto real) { return backward<decltype(real)>(shape, wants_sums, target); });
          }};
}

}  // namespace penstock::ops
