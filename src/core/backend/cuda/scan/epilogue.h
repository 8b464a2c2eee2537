#pragma once

#include "backend/cuda/scan/fused.h"

namespace penstock::cuda {

/// A large layer's forward pass in one launch: the recurrence is the epilogue of the product, whose gates go to memory
/// only where a tape keeps them. Running allocates nothing and waits for nothing.
class EpilogueExecutable {
 public:
  /// Prepares a call of this form; `plan` is a plan of its problem in the epilogue algorithm.
  EpilogueExecutable(Device& device, const FusedForward& call, const plan::GpuScanPlan& plan);

  const plan::GpuScanPlan& plan() const { return plan_; }
  const Kernel& kernel() const { return *kernel_; }
  /// Bytes of workspace, as of ScanExecutable.
  std::size_t workspace_bytes() const { return static_cast<std::size_t>(plan_.workspace_bytes()); }
  /// A call of the form that was prepared: other addresses and strides of the same alignment or better, no more rows or
  /// steps. Throws Error(invalid_argument) otherwise.
  void run(const FusedForward& call, DeviceAddress workspace, StreamHandle stream) const;

 private:
  plan::CellText rule_;
  plan::GpuLayerProblem problem_;
  plan::GpuScanPlan plan_;
  const Kernel* kernel_ = nullptr;
  unsigned blocks_ = 0;  // that run at once
};

/// The kernel for a problem and its plan.
KernelSource epilogue_source(const ScanRule& rule, const plan::GpuLayerProblem& problem, const plan::GpuScanPlan& plan);

}  // namespace penstock::cuda
