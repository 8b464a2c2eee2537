#pragma once

#include "backend/cuda/scan/scan.h"
#include "plan/gpu/scan_layer.h"

namespace penstock::cuda {

/// A layer's forward pass in one launch.
struct FusedForward {
  /// The recurrence; its terms are where the gates go, or have no data if nobody wants them.
  ScanForward scan;
  Index input = 1;           ///< I
  DeviceSequence x;          ///< [B, T, I], of the recurrence's storage; not y
  DeviceAddress weight = 0;  ///< [G * H, I] without gaps
  DeviceAddress bias = 0;    ///< [G * H] or 0
};

/// Returns the problem of a call for plan_gpu_layer(). Throws Error(invalid_argument) for calls that never fit.
plan::GpuLayerProblem problem_of(const FusedForward& call);

/// A fused forward pass, compiled. Needs no workspace; running allocates nothing and waits for nothing, and any number
/// of calls may be under way.
class FusedExecutable {
 public:
  /// Prepares a call of this form; `plan` is a plan of its problem in the fused algorithm.
  FusedExecutable(Device& device, const FusedForward& call, const plan::GpuScanPlan& plan);

  const plan::GpuScanPlan& plan() const { return plan_; }
  const Kernel& kernel() const { return *kernel_; }
  /// A call of the form that was prepared: other addresses and strides of the same alignment or better, any number of
  /// rows and steps. Throws Error(invalid_argument) otherwise.
  void run(const FusedForward& call, StreamHandle stream) const;

 private:
  plan::CellText rule_;
  plan::GpuLayerProblem problem_;
  plan::GpuScanPlan plan_;
  const Kernel* kernel_ = nullptr;
  int x_alignment_ = 1;
};

/// Returns the common part of the kernels of layers in one launch, which fills what both have of `pass`; the caller
/// adds entry and file.
KernelSource layer_source(const ScanRule& rule, const plan::GpuLayerProblem& problem, const plan::GpuScanPlan& plan,
                          given::LayerPass pass);

/// The kernel for a problem and its plan; `x_alignment`: of x, its strides and the bytes of its steps.
KernelSource fused_source(const ScanRule& rule, const plan::GpuLayerProblem& problem, const plan::GpuScanPlan& plan,
                          int x_alignment);

}  // namespace penstock::cuda
