#pragma once

#include <variant>

#include "backend/cuda/product/few_rows_product.h"
#include "backend/cuda/product/float_product.h"

namespace penstock::cuda {

/// Returns whether a product of many rows runs in our own kernels. They compute floats without TF32: by warpgroups for
/// any size, by warps up to the size from which cuBLASLt was measured to be quicker (docs/results/gpu.md). cuBLASLt
/// computes all other products. Exact products of floats are all ours.
inline bool in_own_kernels(const plan::GpuModel& gpu, const ProductShape& shape) {
  const double size = static_cast<double>(shape.m) * static_cast<double>(shape.n) * static_cast<double>(shape.k);
  return shape.storage == plan::Storage::f32 && !shape.tf32 &&
         (shape.exact || has_warpgroups(gpu) || size <= gpu.costs.product.own);
}

/// A matrix product, in our own kernels or by cuBLASLt. Not safe for two calls at once.
class MatrixProduct {
 public:
  MatrixProduct() = default;
  /// Throws like Product and FloatProduct.
  MatrixProduct(Device& device, const ProductShape& shape);

  std::size_t workspace_bytes() const;
  void run(DeviceAddress a, DeviceAddress b, DeviceAddress d, DeviceAddress vector, DeviceAddress workspace,
           StreamHandle stream, bool add = false) const;

 private:
  std::variant<Product, FloatProduct, FewRowsProduct> engine_;
};

}  // namespace penstock::cuda
