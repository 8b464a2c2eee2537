#include "ops/pointwise/numbered_rows.h"

#include "base/check.h"
#include "ops/cuda/ops.h"

namespace penstock::ops {

Op gather_rows(const NumberedRows& shape) {
  return {.name = "gather_rows", .prepare = [shape](const Target& target) {
            require(target.device.is_cuda(), "rows are numbered on GPUs alone");
            return cuda_gather_rows(shape, target);
          }};
}

Op scatter_rows(const NumberedRows& shape) {
  return {.name = "scatter_rows", .prepare = [shape](const Target& target) {
            require(target.device.is_cuda(), "rows are numbered on GPUs alone");
            return cuda_scatter_rows(shape, target);
          }};
}

}  // namespace penstock::ops
