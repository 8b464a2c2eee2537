#pragma once

#include "plan/gpu/scan_layer.h"
#include "plan/rule.h"

namespace penstock::plan {

/// Returns the rule for layers of scan cells in one launch: product, gates and recurrence.
Rule<GpuScanPlan> fused_layer_rule(const GpuLayerProblem& problem, const GpuModel& gpu);

/// Returns the rule for large layers of scan cells on Hopper: the recurrence is the epilogue of the product.
Rule<GpuScanPlan> epilogue_layer_rule(const GpuLayerProblem& problem, const GpuModel& gpu);

/// Returns all rules for the forward pass of a layer: these, and a recurrence after a separate product.
std::vector<Rule<GpuScanPlan>> layer_rules(const GpuLayerProblem& problem, const GpuModel& gpu);

/// Returns the bytes that the recurrence of a layer reads and writes.
inline double recurrence_bytes(const GpuScanProblem& scan) {
  return static_cast<double>(scan.rows) * static_cast<double>(scan.steps) * static_cast<double>(scan.channels) *
         (scan.gates + 1) * size_of(scan.storage);
}

}  // namespace penstock::plan
