#pragma once

#include <variant>

#include "backend/cuda/product/few_rows_product.h"
#include "backend/cuda/product/float_product.h"

namespace penstock::cuda {

/// Whether a product of many rows runs in kernels of our own: floats that keep their digits, of any size by warpgroups,
/// and by warps up to the size from which cuBLASLt's plain multiplications were measured to be quicker
/// (docs/results/gpu.md). All else is cuBLASLt's.
inline bool in_own_kernels(const plan::GpuModel& gpu, const ProductShape& shape) {
  const double size = static_cast<double>(shape.m) * static_cast<double>(shape.n) * static_cast<double>(shape.k);
  return shape.storage == plan::Storage::f32 && !shape.tf32 && (has_warpgroups(gpu) || size <= gpu.costs.own_product);
}

/// A product by whoever does it best. Not safe for two calls at once.
class MatrixProduct {
 public:
  MatrixProduct() = default;
  /// As Product and FloatProduct.
  MatrixProduct(Device& device, const ProductShape& shape);

  std::size_t workspace_bytes() const;
  void run(DeviceAddress a, DeviceAddress b, DeviceAddress d, DeviceAddress vector, DeviceAddress workspace,
           StreamHandle stream, bool add = false) const;

 private:
  std::variant<Product, FloatProduct, FewRowsProduct> engine_;
};

}  // namespace penstock::cuda
