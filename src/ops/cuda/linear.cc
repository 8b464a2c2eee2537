// y = x W^T + b on a GPU, and its gradients.

#include "backend/cuda/product/gradient_products.h"
#include "ops/cuda/common.h"
#include "ops/cuda/ops.h"

namespace penstock::ops {

namespace {

class LinearForward final : public Executable {
 public:
  LinearForward(const Linear& shape, const Target& target) : product_(gpu_of(target), product_of(shape, target)) {}
  std::size_t scratch_bytes() const override { return product_.workspace_bytes(); }
  void run(const Call& call, const Operands& memory) override {
    product_.run(address_of(memory, LinearOperand::x), address_of(memory, LinearOperand::weight),
                 address_of(memory, LinearOperand::y), address_of(memory, LinearOperand::bias),
                 address_of(memory.scratch), stream_of(call));
  }

 private:
  static cuda::ProductShape product_of(const Linear& shape, const Target& target) {
    cuda::ProductShape product{.storage = storage_of(target.dtype), .result = storage_of(target.dtype)};
    product.m = target.positions(), product.n = shape.outputs, product.k = shape.inputs;
    product.m_varies = true;
    product.exact = target.execution.exact;
    product.b_transposed = true;
    product.a_stride = shape.inputs, product.b_stride = shape.inputs, product.d_stride = shape.outputs;
    product.epilogue = cuda::Epilogue::add_bias;
    product.a_alignment = product.d_alignment = planned_value;
    product.b_alignment = static_cast<int>(planned_parameter(target.dtype));
    return product;
  }

  cuda::MatrixProduct product_;
};

class LinearBackward final : public Executable {
 public:
  LinearBackward(const Linear& shape, bool wants_dbias, bool wants_dx, const Target& target)
      : products_(gpu_of(target), shape_of(shape, wants_dbias, wants_dx, target)) {}
  std::size_t scratch_bytes() const override { return products_.products_bytes(); }
  std::size_t persistent_bytes() const override { return padded(products_.sums_bytes()); }
  void run(const Call& call, const Operands& memory) override {
    products_.run({.x = address_of(memory, LinearBackwardOperand::x),
                   .weight = address_of(memory, LinearBackwardOperand::weight),
                   .dy = address_of(memory, LinearBackwardOperand::dy),
                   .dweight = address_of(memory, LinearBackwardOperand::dweight),
                   .dbias = address_of(memory, LinearBackwardOperand::dbias),
                   .dx = address_of(memory, LinearBackwardOperand::dx)},
                  address_of(memory.persistent), address_of(memory.scratch), stream_of(call));
  }

 private:
  static cuda::GradientShape shape_of(const Linear& shape, bool wants_dbias, bool wants_dx, const Target& target) {
    return {.storage = storage_of(target.dtype),
            .gradients = plan::Storage::f32,
            .positions = target.positions(),
            .inputs = shape.inputs,
            .outputs = shape.outputs,
            .x_stride = shape.inputs,
            .bias = wants_dbias,
            .dx = wants_dx,
            .dy_alignment = planned_value,
            .x_alignment = planned_value,
            .weight_alignment = static_cast<int>(planned_parameter(target.dtype)),
            .dweight_alignment = static_cast<int>(planned_parameter(target.master())),
            .dx_alignment = planned_value};
  }

  cuda::GradientProducts products_;
};

}  // namespace

Prepared cuda_linear_forward(const Linear& shape, const Target& target) {
  return std::make_unique<LinearForward>(shape, target);
}

Prepared cuda_linear_backward(const Linear& shape, bool wants_dbias, bool wants_dx, const Target& target) {
  return std::make_unique<LinearBackward>(shape, wants_dbias, wants_dx, target);
}

}  // namespace penstock::ops
