#pragma once

#include <vector>

#include "plan/gpu/gpu.h"

namespace penstock::plan {

/// One layer of a scan cell on a GPU, forward: the product of the input with the weights of all gates, then the
/// recurrence of `scan`, whose regime is what was asked for.
struct GpuLayerProblem {
  GpuScanProblem scan;
  Index input = 1;                // I
  bool keep_gates = true;         ///< The backward pass will want them in memory.
  bool tf32 = false;              ///< The product may round its factors, where it is one by itself.
  bool needs_one_launch = false;  ///< There is no memory for gates: the fused and the epilogue regime do without.
  int input_alignment = 16;       ///< Of x, of the weights and of the strides of both, in bytes, up to 16.
  bool operator==(const GpuLayerProblem&) const = default;
};

/// The recurrence's plan; in the fused regime, of the product too. Throws Error: invalid_argument as plan_gpu_scan
/// does, and unsupported if the regime that was asked for cannot be had, with the reason.
GpuScanPlan plan_gpu_layer(const GpuLayerProblem& problem, const GpuModel& gpu);

/// Fused plans, one for each number of channels of a thread and of tiles, from the one that is estimated best: for
/// measurements.
std::vector<GpuScanPlan> fused_plans(const GpuLayerProblem& problem, const GpuModel& gpu);

/// Shared memory of a fused block, as src/backend/cuda/kernels/scan/fused_forward.cuh lays it out.
Index fused_shared_bytes(const GpuScanPlan& plan, const GpuLayerProblem& problem);

/// The same of epilogue_forward.cuh.
Index epilogue_shared_bytes(const GpuScanPlan& plan, const GpuLayerProblem& problem);

}  // namespace penstock::plan
