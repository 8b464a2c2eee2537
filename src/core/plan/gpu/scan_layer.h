#pragma once

#include <vector>

#include "plan/gpu/scan.h"

namespace penstock::plan {

/// The forward pass of one layer of a scan cell on a GPU: the product of the input with the weights of all gates, then
/// the recurrence `scan`. scan.algorithm is the requested algorithm.
struct GpuLayerProblem {
  GpuScanProblem scan;
  Index input = 1;         // I
  bool keep_gates = true;  ///< The gates are written to memory for the backward pass.
  bool tf32 = false;       ///< A separate product may round its factors.
  bool needs_one_launch =
      false;                 ///< There is no memory for gates: only the fused and epilogue algorithms are possible.
  int input_alignment = 16;  ///< Alignment in bytes, up to 16, of x, the weights and the strides of both.
  bool operator==(const GpuLayerProblem&) const = default;
};

/// Returns the plan of the recurrence; in the fused algorithm it includes the product. Throws Error: invalid_argument
/// as plan_gpu_scan() does, unsupported with the reason if the requested algorithm is not possible.
GpuScanPlan plan_gpu_layer(const GpuLayerProblem& problem, const GpuModel& gpu);

/// Returns fused plans for measurements, the best estimate first: one for each number of channels per thread and of
/// tiles.
std::vector<GpuScanPlan> fused_plans(const GpuLayerProblem& problem, const GpuModel& gpu);

/// Returns the bytes of shared memory of a fused block (layout: src/core/backend/cuda/kernels/scan/fused_forward.cuh).
Index fused_shared_bytes(const GpuScanPlan& plan, const GpuLayerProblem& problem);

/// Returns the bytes of shared memory of an epilogue block (layout: epilogue_forward.cuh).
Index epilogue_shared_bytes(const GpuScanPlan& plan, const GpuLayerProblem& problem);

}  // namespace penstock::plan
