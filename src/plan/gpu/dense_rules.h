#pragma once

#include "plan/gpu/dense.h"
#include "plan/rule.h"

namespace penstock::plan {

using DenseRule = Rule<GpuDensePlan>;

// Recurrences of dense cells. One file each.
DenseRule dense_head_rule(const GpuDenseProblem& problem, const GpuModel& gpu);
DenseRule dense_cluster_rule(const GpuDenseProblem& problem, const GpuModel& gpu);
DenseRule dense_chip_rule(const GpuDenseProblem& problem, const GpuModel& gpu);
/// Whether warpgroups take such a problem at all, so that its rule is worth a word.
bool warpgroups_take(const GpuDenseProblem& problem, const GpuModel& gpu);
DenseRule dense_warpgroup_rule(const GpuDenseProblem& problem, const GpuModel& gpu);
DenseRule dense_step_rule(const GpuDenseProblem& problem, const GpuModel& gpu);
DenseRule dense_diagonal_rule(const GpuDenseProblem& problem, const GpuModel& gpu);

/// Those of a problem, the preferred ones first, as dense_algorithms() has them: the diagonal one only where every unit
/// is a head. Throws Error(invalid_argument) as
/// plan_gpu_dense() does.
std::vector<DenseRule> dense_rules(const GpuDenseProblem& problem, const GpuModel& gpu);

}  // namespace penstock::plan
