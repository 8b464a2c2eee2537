#pragma once

#include <span>
#include <vector>

#include "plan/gpu/dense.h"

namespace penstock::plan {

/// Returns whether blocks of a plan share the matrix of a head. If so, fewer rows get more blocks each.
bool shares_a_matrix(const GpuDensePlan& plan);

/// Returns the numbers of rows, from all rows downwards, that deserve separate plans in a pass over rows of decreasing
/// length. Each such plan makes a step faster by at least a tenth, because ended rows leave multiprocessors to the
/// others. Returns only the number of all rows if no blocks share a matrix.
std::vector<Index> rows_worth_a_plan(const GpuDenseProblem& problem, const GpuModel& gpu);

/// Steps `begin` to `begin + steps` of a recurrence, run by plan number `plan`.
struct SortedStage {
  std::size_t plan = 0;
  Index begin = 0, steps = 0;
  bool operator==(const SortedStage&) const = default;
};

/// The number of rows of a plan, and its time per step.
struct SortedPlan {
  Index rows = 1;
  double step_microseconds = 0;
};

/// Overhead of a further stage: a launch, and loading the matrix before the first step.
constexpr double stage_microseconds = 40;

/// Returns the fastest stages. `sizes` has the number of rows of each step, which never rises. `plans` are for
/// decreasing numbers of rows; the first is for all rows. `begin_microseconds` is the overhead of a stage.
std::vector<SortedStage> sorted_stages(std::span<const SortedPlan> plans, std::span<const Index> sizes,
                                       double begin_microseconds = stage_microseconds);

}  // namespace penstock::plan
