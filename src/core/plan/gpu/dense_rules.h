#pragma once

#include "plan/gpu/dense.h"
#include "plan/rule.h"

namespace penstock::plan {

using DenseRule = Rule<GpuDensePlan>;

/// Returns why an algorithm whose threads know nothing of each other's units cannot run the problem; an empty text if
/// it can.
std::string means_refusal(const GpuDenseProblem& problem);

/// Returns why an algorithm whose blocks share a head cannot exchange the means of a cell; an empty text if it can.
std::string exchange_refusal(const GpuDenseProblem& problem, const std::string& algorithm);

/// Returns "a step takes about 2720 ns, and teams run all steps once".
std::string time_of_teams(double step_nanoseconds, Index runs);

// Rules for recurrences of dense cells, one file each. A plan reads the values of a solution in the order of the
// variables, so that a rule for one batch takes the solution of a rule for another (exact mode).
DenseRule dense_head_rule(const GpuDenseProblem& problem, const GpuModel& gpu);
DenseRule dense_cluster_rule(const GpuDenseProblem& problem, const GpuModel& gpu);
DenseRule dense_chip_rule(const GpuDenseProblem& problem, const GpuModel& gpu);
/// Returns whether warpgroups support this kind of problem at all. If not, reports omit their rule.
bool warpgroups_take(const GpuDenseProblem& problem, const GpuModel& gpu);
DenseRule dense_warpgroup_rule(const GpuDenseProblem& problem, const GpuModel& gpu);
DenseRule dense_step_rule(const GpuDenseProblem& problem, const GpuModel& gpu);
DenseRule dense_diagonal_rule(const GpuDenseProblem& problem, const GpuModel& gpu);

/// Returns the rules for a problem in the order of dense_algorithms(). The diagonal rule is included only if every unit
/// is a head. Throws Error(invalid_argument) as plan_gpu_dense() does.
std::vector<DenseRule> dense_rules(const GpuDenseProblem& problem, const GpuModel& gpu);

}  // namespace penstock::plan
