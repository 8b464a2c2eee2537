#include "backend/cuda/product/gradient_products.h"

#include <algorithm>

namespace penstock::cuda {

namespace {

Index stride_of_dy(const GradientShape& of) { return of.dy_stride > 0 ? of.dy_stride : of.outputs; }

ProductShape weight_product(const GradientShape& of) {
  ProductShape shape{.storage = of.storage, .result = of.gradients, .tf32 = of.tf32};
  shape.m = of.outputs, shape.n = of.inputs, shape.k = of.positions;
  shape.k_varies = true;
  shape.a_transposed = true;
  shape.a_stride = stride_of_dy(of), shape.b_stride = of.x_stride, shape.d_stride = of.inputs;
  shape.epilogue = of.bias ? Epilogue::sum_columns : Epilogue::nothing;
  shape.a_alignment = of.dy_alignment, shape.b_alignment = of.x_alignment, shape.d_alignment = of.dweight_alignment;
  return shape;
}

/// Returns whether the product of the weights sums the columns as its epilogue. cuBLASLt reads halves a second time for
/// that; measured, this takes twice as long as a kernel that only sums.
bool sums_well(Device& device, const ProductShape& shape) {
  if (in_own_kernels(device.model(), shape)) return true;
  return shape.storage == plan::Storage::f32 && can_multiply(device, shape);
}

}  // namespace

ProductShape input_gradient_product(const GradientShape& of) {
  ProductShape shape{.storage = of.storage, .result = of.storage, .tf32 = of.tf32};
  shape.m = of.positions, shape.n = of.inputs, shape.k = of.outputs;
  shape.m_varies = true;
  shape.a_padded = of.dy_stride > of.outputs;
  shape.a_stride = stride_of_dy(of), shape.b_stride = of.inputs, shape.d_stride = of.x_stride;
  shape.a_alignment = of.dy_alignment, shape.b_alignment = of.weight_alignment, shape.d_alignment = of.dx_alignment;
  return shape;
}

int alignment_of(DeviceAddress address) { return common_alignment(256, {static_cast<std::int64_t>(address)}); }

GradientProducts::GradientProducts(Device& device, const GradientShape& shape) : wants_dx_(shape.dx) {
  ProductShape weights = weight_product(shape);
  if (shape.bias && !sums_well(device, weights)) {
    weights.epilogue = Epilogue::nothing;
    ColumnSums sums{
        .storage = shape.storage, .result = shape.gradients, .rows = shape.positions, .columns = shape.outputs};
    sums.stride = stride_of_dy(shape);
    sums.alignment = common_alignment(256, {shape.dy_alignment, sums.stride * plan::size_of(shape.storage)});
    bias_sums_.emplace(device, sums);
  }
  weight_product_ = MatrixProduct(device, weights);
  if (wants_dx_) input_product_ = MatrixProduct(device, input_gradient_product(shape));
}

std::size_t GradientProducts::products_bytes() const {
  return std::max(weight_product_.workspace_bytes(), wants_dx_ ? input_product_.workspace_bytes() : 0);
}

void GradientProducts::run(const GradientCall& call, DeviceAddress sums, DeviceAddress products,
                           StreamHandle stream) const {
  if (bias_sums_) bias_sums_->run(call.dy, call.dbias, sums, stream);
  weight_product_.run(call.dy, call.x, call.dweight, call.dbias, products, stream);
  if (wants_dx_) input_product_.run(call.dy, call.weight, call.dx, 0, products, stream, call.add_dx);
}

}  // namespace penstock::cuda
