#pragma once

#include <memory>

#include "backend/cuda/driver/blas.h"
#include "backend/cuda/driver/kernel.h"
#include "plan/gpu/product.h"

namespace penstock::cuda {

class FloatPairs;

/// An fp32 GEMM by kernels of our own, on tensor cores and with the accuracy of plain floats
/// (kernels/product/split_product.cuh), where cuBLASLt has plain multiplications only. Running allocates nothing and
/// can be captured; any number of calls may be under way, each with a workspace of its own.
///
/// Products of pairs of float16 (plan.pairs) make pairs of both matrices in the workspace first, four bytes a float.
class FloatProduct {
 public:
  /// `shape`: in f32 throughout; Epilogue::sum_columns goes with `a_transposed` or without.
  FloatProduct(Device& device, const ProductShape& shape);
  /// Uses a plan of the caller's, for measurements.
  FloatProduct(Device& device, const ProductShape& shape, const plan::GpuProductPlan& plan);

  const plan::GpuProductPlan& plan() const { return plan_; }
  std::size_t workspace_bytes() const;
  /// Runs like Product::run(). `unfit`: counts of rows that have no pairs, or 0; with counts, a product without pairs
  /// is made only if there are too many (kernels/product/unfit.cuh).
  void run(DeviceAddress a, DeviceAddress b, DeviceAddress d, DeviceAddress vector, DeviceAddress workspace,
           StreamHandle stream, bool add = false, DeviceAddress unfit = 0) const;

 private:
  std::size_t splits_bytes() const;
  void add_splits(DeviceAddress d, DeviceAddress sums, DeviceAddress workspace, StreamHandle stream, bool add,
                  DeviceAddress unfit) const;

  ProductShape shape_;
  plan::GpuProductPlan plan_;
  std::shared_ptr<const FloatPairs> pairs_;  // if plan.pairs
  const Kernel* kernel_ = nullptr;           // else
  const Kernel* splits_ = nullptr;           // if there are several
};

plan::GpuProductProblem problem_of(const ProductShape& shape);
/// Returns the kernel of a plan without pairs.
KernelSource float_product_source(const ProductShape& shape, const plan::GpuProductPlan& plan);
/// Returns how many columns of D, or of a split's sums, are stored at once: 1 or 2.
int stored_columns(const ProductShape& shape, const plan::GpuProductPlan& plan);
/// Returns the bytes of one copy of a matrix' row of `columns` factors.
int piece_of(int alignment, Index stride, Index columns);

}  // namespace penstock::cuda
