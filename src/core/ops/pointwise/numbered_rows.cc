#include "ops/pointwise/numbered_rows.h"

#include <algorithm>
#include <cstdint>

#include "ops/cuda/ops.h"

namespace penstock::ops {
namespace {

/// Calls copy(row, number) for each row that has a number.
template <class Copy>
void for_numbers(const Target& target, const std::int32_t* numbers, const Copy& copy) {
  for (Index row = 0; row < target.rows; ++row) {
    if (numbers[row] >= 0) copy(row, Index{numbers[row]});
  }
}

}  // namespace

Op gather_rows(const NumberedRows& shape) {
  return {.name = "gather_rows", .prepare = [shape](const Target& target) -> std::unique_ptr<Executable> {
            if (target.device.is_cuda()) return cuda_gather_rows(shape, target);
            return simple([=](const Call&, const Operands& memory) {
              for_numbers(target, memory.get<const std::int32_t>(GatherRowsOperand::numbers), [&](Index row, Index i) {
                std::copy_n(memory.get<const float>(GatherRowsOperand::array) + i * shape.stride, shape.width,
                            memory.get<float>(GatherRowsOperand::rows) + row * shape.width);
              });
            });
          }};
}

Op scatter_rows(const NumberedRows& shape) {
  return {.name = "scatter_rows", .prepare = [shape](const Target& target) -> std::unique_ptr<Executable> {
            if (target.device.is_cuda()) return cuda_scatter_rows(shape, target);
            return simple([=](const Call&, const Operands& memory) {
              for_numbers(target, memory.get<const std::int32_t>(ScatterRowsOperand::numbers), [&](Index row, Index i) {
                std::copy_n(memory.get<const float>(ScatterRowsOperand::rows) + row * shape.width, shape.width,
                            memory.get<float>(ScatterRowsOperand::array) + i * shape.stride);
              });
            });
          }};
}

}  // namespace penstock::ops
