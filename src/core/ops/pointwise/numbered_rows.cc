#include "ops/pointwise/numbered_rows.h"

#include "base/check.h"
#include "ops/cuda/ops.h"

namespace penstock::ops {
namespace {

Op copy_rows(const char* name, const NumberedRows& shape, bool scatters) {
  return {.name = name, .prepare = [shape, scatters](const Target& target) {
            require(target.device.is_cuda(), "rows are numbered on GPUs alone");
            return cuda_numbered_rows(shape, scatters, target);
          }};
}

}  // namespace

Op gather_rows(const NumberedRows& shape) { return copy_rows("gather_rows", shape, false); }
Op scatter_rows(const NumberedRows& shape) { return copy_rows("scatter_rows", shape, true); }

}  // namespace penstock::ops
