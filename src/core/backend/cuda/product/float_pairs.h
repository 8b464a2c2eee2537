#pragma once

#include "backend/cuda/pointwise/copy.h"
#include "backend/cuda/product/float_product.h"

namespace penstock::cuda {

#include "backend/cuda/kernels/product/float_product_arguments.h"
#include "backend/cuda/kernels/product/paired_matrix.h"
// Behind them.
#include "backend/cuda/kernels/product/float_pairs_arguments.h"

/// The parts of an fp32 GEMM of pairs of float16 (kernels/product/float_pairs.cuh): FloatProduct runs them. Floats that
/// no pair keeps (infinity, NaN, and those far smaller than the largest of the 64 next to them) cost time, not
/// accuracy: rows and columns with such floats are multiplied by plain floats, and with many of them the whole product
/// is made without pairs. Infinities become NaN then, as in any such product (kernels/product/split_product.cuh).
class FloatPairs {
 public:
  /// `plan`: with plan.pairs.
  FloatPairs(Device& device, const ProductShape& shape, const plan::GpuProductPlan& plan);

  /// Bytes of pairs and counts. `workspace` below: an address of as many, a multiple of 16.
  std::size_t workspace_bytes() const;
  /// Where the counts of unfit rows of A and columns of B are: int32 [2].
  DeviceAddress counts(DeviceAddress workspace) const;
  /// Makes pairs of both matrices, counts unfit rows, and multiplies. Unfit rows and columns of D hold what they hold
  /// without the product; with too many of them, so does all of D.
  void multiply(const FloatProductArguments& product, DeviceAddress workspace, StreamHandle stream) const;
  /// Adds to D what unfit rows and columns lack, unless there are too many.
  void repair(const FloatProductArguments& product, DeviceAddress workspace, StreamHandle stream) const;
  /// Makes the whole product without pairs, if there are too many.
  void replace(DeviceAddress a, DeviceAddress b, DeviceAddress d, DeviceAddress vector, DeviceAddress workspace,
               StreamHandle stream, bool add) const;

 private:
  FloatPairsArguments arguments_of(const FloatProductArguments& product, DeviceAddress workspace) const;
  void split(const Kernel& kernel, bool transposed, const float* matrix, Index stride, Index rows,
             const PairedMatrix& pairs, StreamHandle stream) const;

  ProductShape shape_;
  plan::GpuProductPlan plan_;
  Index blocks_;  // of K
  unsigned multiprocessors_;
  FillExecutable clear_;
  FloatProduct whole_;
  const Kernel *split_a_, *split_b_, *kernel_, *repair_;
};

KernelSource float_pairs_source(const ProductShape& shape, const plan::GpuProductPlan& plan);
/// Returns the kernel that makes the pairs of A, or of B.
KernelSource split_pairs_source(const ProductShape& shape, bool of_a);
KernelSource repair_product_source(const ProductShape& shape);

}  // namespace penstock::cuda
