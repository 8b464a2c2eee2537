#include "ops/dropout.h"

#include "ops/cuda/ops.h"
#include "ops/elementwise.h"

namespace penstock::ops {

namespace {

template <class Real>
void drop_values(const Dropout& shape, Index count, const Call& call, const Operands& memory) {
  const auto* const x = memory.get<const Real>(0);
  auto* const y = memory.get<Real>(1);
  const DropoutMask mask(shape, call);
  const Real kept = static_cast<Real>(shape.scale());
  for_range(call.threads, count, 4, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) y[i] = mask.keeps(i) ? kept * x[i] : Real(0);
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

}  // namespace penstock::ops
