#pragma once

#include "plan/gpu/layer.h"
#include "plan/rule.h"

namespace penstock::plan {

/// Layers of scan cells in one launch: product, gates and recurrence.
Rule<GpuScanPlan> fused_layer_rule(const GpuLayerProblem& problem, const GpuModel& gpu);

/// Large layers of scan cells on Hopper: the recurrence is the epilogue of the product.
Rule<GpuScanPlan> epilogue_layer_rule(const GpuLayerProblem& problem, const GpuModel& gpu);

/// Every way to run a layer forward: these, and a recurrence behind a product.
std::vector<Rule<GpuScanPlan>> layer_rules(const GpuLayerProblem& problem, const GpuModel& gpu);

/// Bytes that a layer's recurrence reads and writes.
inline double recurrence_bytes(const GpuScanProblem& scan) {
  return static_cast<double>(scan.rows) * static_cast<double>(scan.steps) * static_cast<double>(scan.channels) *
         (scan.gates + 1) * size_of(scan.storage);
}

}  // namespace penstock::plan
