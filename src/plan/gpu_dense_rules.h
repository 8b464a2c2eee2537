#pragma once

#include "plan/gpu_dense.h"
#include "plan/rule.h"

namespace penstock::plan {

using DenseRule = Rule<GpuDensePlan>;

// Recurrences of dense cells. One file each.
DenseRule dense_head_rule(const GpuDenseProblem& problem, const GpuModel& gpu);
DenseRule dense_cluster_rule(const GpuDenseProblem& problem, const GpuModel& gpu);

/// By DenseAlgorithm::head. Throws Error(unsupported) as plan_gpu_dense() does.
GpuDensePlan plan_dense_head(const GpuDenseProblem& problem, const GpuModel& gpu);

}  // namespace penstock::plan
