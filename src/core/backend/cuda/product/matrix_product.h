#pragma once

#include <optional>
#include <variant>

#include "backend/cuda/pointwise/copy.h"
#include "backend/cuda/product/few_rows_product.h"
#include "backend/cuda/product/float_product.h"

namespace penstock::cuda {

/// Returns whether a product of many rows runs in our own kernels. They compute floats without TF32: by warpgroups for
/// any size, by warps up to the size from which cuBLASLt was measured to be quicker (docs/results/gpu.md). cuBLASLt
/// computes all other products. Exact fp32 GEMMs are all ours.
inline bool in_own_kernels(const plan::GpuModel& gpu, const ProductShape& shape) {
  const double size = static_cast<double>(shape.m) * static_cast<double>(shape.n) * static_cast<double>(shape.k);
  return shape.storage == plan::Storage::f32 && !shape.tf32 &&
         (shape.exact || has_warpgroups(gpu) || size <= gpu.costs.product.own);
}

/// Rows that are no multiples of 16 bytes, and a copy of them that are: cuBLASLt multiplies others a third as fast.
/// Padding of the copy is 0.
class AlignedRows {
 public:
  /// `to_copy`: from the rows to a copy of so many. `writes`: the rows' values come from it.
  AlignedRows(Device& device, const CopyRows& to_copy, Index rows_of_copy, bool writes);
  std::size_t bytes() const { return bytes_; }
  void copy(DeviceAddress rows, DeviceAddress copy, StreamHandle stream) const;
  void write(DeviceAddress copy, DeviceAddress rows, StreamHandle stream) const;

 private:
  std::size_t bytes_;
  FillExecutable clear_;
  CopyRowsExecutable copy_;
  std::optional<CopyRowsExecutable> write_;
};

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
  std::size_t engine_bytes() const;
  /// Returns the product of copies, if it is worth them.
  ProductShape align(Device& device, const ProductShape& shape);

  std::variant<Product, FloatProduct, FewRowsProduct> engine_;
  std::optional<AlignedRows> a_, b_, d_;
};

}  // namespace penstock::cuda
