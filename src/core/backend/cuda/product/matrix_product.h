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

/// Returns the values from row to row of a 16-bit matrix in memory of Penstock's own, for GEMMs to read and write in
/// place: multiples of 16 bytes, or of 128 where they add little. Float rows have no gaps.
Index product_pitch(Index width, plan::Storage storage);

/// Sets to 0 what follows each row of a 16-bit matrix of such a pitch, up to a multiple of 16 bytes.
void clear_padding(DeviceAddress matrix, Index rows, Index width, plan::Storage storage, StreamHandle stream);

/// A copy of rows whose width or distance is no multiple of 16 bytes, in rows of product_pitch(): cuBLASLt multiplies
/// others a third as fast.
class AlignedRows {
 public:
  /// `rows_of_copy`: with rows of zeros at the end. `writes`: the rows' values come from the copy.
  AlignedRows(Device& device, const CopyRows& to_copy, Index rows_of_copy, bool writes);
  std::size_t bytes() const;
  void copy(DeviceAddress rows, DeviceAddress copy, StreamHandle stream) const;
  void write(DeviceAddress copy, DeviceAddress rows, StreamHandle stream) const;

 private:
  /// Returns the bytes of so many rows of the copy.
  std::size_t bytes_of(Index rows) const;

  CopyRows to_copy_;
  Index rows_of_copy_;
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
