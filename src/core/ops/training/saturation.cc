#include "ops/training/saturation.h"

#include <atomic>
#include <cmath>

#include "ops/cuda/ops.h"
#include "ops/pointwise/elementwise.h"

namespace penstock::ops {

Op saturation(Index width) {
  return {"saturation", [width](const Target& target) {
            if (target.device.is_cuda()) return cuda_saturation(width, target);
            return with_real(target.dtype, [&](auto real) {
              using Real = decltype(real);
              return simple([width](const Call& call, const Operands& memory) {
                const auto* const y = memory.get<const Real>(UnaryOperand::x);
                auto* const counts = memory.get<std::int64_t>(UnaryOperand::y);
                std::atomic<Index> saturated{0}, total{0};
                for_range(call.threads, call.batch.rows, call.batch.steps * width, [&](Index begin, Index end) {
                  for (Index b = begin; b < end; ++b) {
                    const Index count = row_length(call.batch, b) * width;
                    const Real* const h = y + b * call.batch.steps * width;
                    Index found = 0;
                    for (Index i = 0; i < count; ++i) found += std::abs(h[i]) > Real(0.99) ? 1 : 0;
                    saturated += found;
                    total += count;
                  }
                });
                counts[0] = saturated;
                counts[1] = total;
              });
            });
          }};
}

}  // namespace penstock::ops
