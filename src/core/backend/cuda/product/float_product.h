#pragma once

#include "backend/cuda/driver/blas.h"
#include "backend/cuda/driver/kernel.h"
#include "plan/gpu/product.h"

namespace penstock::cuda {

/// An fp32 GEMM by kernels of our own, on tensor cores and with the accuracy of plain floats
/// (kernels/product/split_product.cuh), where cuBLASLt has plain multiplications only. Running allocates nothing and
/// can be captured; any number of calls may be under way, each with a workspace of its own.
class FloatProduct {
 public:
  /// `shape`: in f32 throughout; Epilogue::sum_columns goes with `a_transposed` or without.
  FloatProduct(Device& device, const ProductShape& shape);
  /// Uses a plan of the caller's, for measurements.
  FloatProduct(Device& device, const ProductShape& shape, const plan::GpuProductPlan& plan);

  const plan::GpuProductPlan& plan() const { return plan_; }
  std::size_t workspace_bytes() const;
  /// Runs like Product::run().
  void run(DeviceAddress a, DeviceAddress b, DeviceAddress d, DeviceAddress vector, DeviceAddress workspace,
           StreamHandle stream, bool add = false) const;

 private:
  void add_splits(DeviceAddress d, DeviceAddress sums, DeviceAddress workspace, StreamHandle stream, bool add) const;

  ProductShape shape_;
  plan::GpuProductPlan plan_;
  const Kernel* kernel_ = nullptr;
  const Kernel* splits_ = nullptr;  // if there are several
};

plan::GpuProductProblem problem_of(const ProductShape& shape);
KernelSource float_product_source(const ProductShape& shape, const plan::GpuProductPlan& plan);
/// Adds up what splits gave (kernels/product/sum_splits_arguments.h): elements of a block, and the threads that share
/// each.
KernelSource sum_splits_source();
inline constexpr int kSplitAcross = 64, kSplitGroups = 4;

}  // namespace penstock::cuda
