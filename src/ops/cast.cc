#include "ops/cast.h"

#include "ops/cuda/ops.h"

namespace penstock::ops {

Op cast(const CastShape& shape, DType from, DType to) {
  return {"cast", [shape, from, to](const Target& target) {
            require(target.device.is_cuda(), "a model on the CPU computes in one type, and does not cast {} to {}",
                    to_string(from), to_string(to));
            return cuda_cast(shape, from, to, target);
          }};
}

}  // namespace penstock::ops
