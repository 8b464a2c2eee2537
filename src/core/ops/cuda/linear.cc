// y = x W^T + b on a GPU, and its gradients.

#include <utility>

#include "backend/cuda/product/gradient_products.h"
#include "ops/cuda/common.h"
#include "ops/cuda/ops.h"

namespace penstock::ops {

Prepared cuda_linear_forward(const Linear& shape, const Target& target) {
  cuda::ProductShape product{.storage = storage_of(target.dtype), .result = storage_of(target.dtype)};
  product.m = target.positions(), product.n = shape.outputs, product.k = shape.inputs;
  product.m_varies = true;
  product.exact = target.execution.exact, product.tf32 = target.tf32();
  product.b_transposed = true;
  product.a_stride = shape.inputs, product.b_stride = shape.inputs, product.d_stride = shape.outputs;
  product.epilogue = cuda::Epilogue::add_bias;
  product.a_alignment = product.d_alignment = planned_value;
  product.b_alignment = static_cast<int>(planned_parameter(target.dtype));
  cuda::MatrixProduct kernel(gpu_of(target), product);
  const std::size_t scratch = kernel.workspace_bytes();
  return simple(
      [kernel = std::move(kernel)](const Call& call, const Operands& memory) {
        kernel.run(address_of(memory, LinearOperand::x), address_of(memory, LinearOperand::weight),
                   address_of(memory, LinearOperand::y), address_of(memory, LinearOperand::bias),
                   address_of(memory.scratch), stream_of(call));
      },
      scratch);
}

Prepared cuda_linear_backward(const Linear& shape, bool wants_dbias, bool wants_dx, const Target& target) {
  cuda::GradientProducts kernels(gpu_of(target),
                                 {.storage = storage_of(target.dtype),
                                  .gradients = plan::Storage::f32,
                                  .positions = target.positions(),
                                  .inputs = shape.inputs,
                                  .outputs = shape.outputs,
                                  .x_stride = shape.inputs,
                                  .bias = wants_dbias,
                                  .dx = wants_dx,
                                  .tf32 = target.tf32(),
                                  .dy_alignment = planned_value,
                                  .x_alignment = planned_value,
                                  .weight_alignment = static_cast<int>(planned_parameter(target.dtype)),
                                  .dweight_alignment = static_cast<int>(planned_parameter(target.master())),
                                  .dx_alignment = planned_value});
  const std::size_t scratch = kernels.products_bytes(), persistent = padded(kernels.sums_bytes());
  return simple(
      [kernels = std::move(kernels)](const Call& call, const Operands& memory) {
        kernels.run({.x = address_of(memory, LinearBackwardOperand::x),
                     .weight = address_of(memory, LinearBackwardOperand::weight),
                     .dy = address_of(memory, LinearBackwardOperand::dy),
                     .dweight = address_of(memory, LinearBackwardOperand::dweight),
                     .dbias = address_of(memory, LinearBackwardOperand::dbias),
                     .dx = address_of(memory, LinearBackwardOperand::dx)},
                    address_of(memory.persistent), address_of(memory.scratch), stream_of(call));
      },
      scratch, persistent);
}

}  // namespace penstock::ops
