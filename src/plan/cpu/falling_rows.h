#pragma once

#include <span>
#include <vector>

#include "plan/gpu/dense.h"

namespace penstock::plan {

/// Whether blocks of a plan share the matrix of a head: fewer rows then have more of them each.
bool shares_a_matrix(const GpuDensePlan& plan);

/// The numbers of rows that a pass over rows of falling length is worth a plan of its own for, from all of them
/// downwards: each makes a step quicker by at least a tenth. Rows that have ended leave multiprocessors to the others
/// then. All
/// rows alone, where no blocks share a matrix.
std::vector<Index> rows_worth_a_plan(const GpuDenseProblem& problem, const GpuModel& gpu);

/// Steps `begin` to `begin + steps` of a walk, by plan number `plan`.
struct FallingStage {
  std::size_t plan = 0;
  Index begin = 0, steps = 0;
  bool operator==(const FallingStage&) const = default;
};

/// A plan for so many rows, and what a step takes by it.
struct FallingPlan {
  Index rows = 1;
  double step_microseconds = 0;
};

/// Of a stage more: a launch whose blocks load their parts of a matrix before the first step.
constexpr double stage_microseconds = 40;

/// The stages that take least, of steps that `sizes` rows have each, a number that never rises. `plans`: of falling
/// numbers of rows, the first for all. `begin_microseconds`: what a stage takes beside its steps.
std::vector<FallingStage> falling_stages(std::span<const FallingPlan> plans, std::span<const Index> sizes,
                                         double begin_microseconds = stage_microseconds);

}  // namespace penstock::plan
