#include "plan/gpu/sorted_rows.h"

#include <algorithm>
#include <iterator>
#include <limits>

namespace penstock::plan {

namespace {

/// Returns the first step with at most this many rows.
Index first_step_of(std::span<const Index> sizes, Index rows) {
  const auto at = std::ranges::partition_point(sizes, [rows](Index size) { return size > rows; });
  return std::distance(sizes.begin(), at);
}

}  // namespace

bool shares_a_matrix(const GpuDensePlan& plan) {
  return plan.algorithm == DenseAlgorithm::cluster || plan.algorithm == DenseAlgorithm::chip ||
         plan.algorithm == DenseAlgorithm::warpgroup;
}

std::vector<Index> rows_worth_a_plan(const GpuDenseProblem& problem, const GpuModel& gpu) {
  constexpr double worth = 0.9;
  std::vector<Index> counts = {problem.rows};
  GpuDensePlan plan = plan_gpu_dense(problem, gpu);
  if (!shares_a_matrix(plan)) return counts;
  // Most steps have many rows, and there a plan gains most: try three quarters, then repeatedly half as many.
  for (Index rows = (3 * problem.rows + 3) / 4; rows < counts.back() && rows >= 4;
       rows = rows > problem.rows / 2 ? (problem.rows + 1) / 2 : (rows + 1) / 2) {
    GpuDenseProblem fewer = problem;
    fewer.rows = rows;
    GpuDensePlan of_fewer = plan_gpu_dense(fewer, gpu);
    if (!shares_a_matrix(of_fewer) || of_fewer.microseconds > worth * plan.microseconds) continue;
    counts.push_back(rows);
    plan = std::move(of_fewer);
  }
  return counts;
}

std::vector<SortedStage> sorted_stages(std::span<const SortedPlan> plans, std::span<const Index> sizes,
                                       double begin_microseconds) {
  const auto steps = static_cast<Index>(sizes.size());
  const std::size_t count = plans.size();
  std::vector<Index> from(count);  // first step with few enough rows for each plan
  for (std::size_t p = 0; p < count; ++p) from[p] = p == 0 ? 0 : first_step_of(sizes, plans[p].rows);
  // Least time of the steps before those of a plan, and the plan of the last of these steps.
  std::vector<double> before(count, 0);
  std::vector<std::size_t> previous(count, count);
  const auto time = [&](std::size_t p, Index end) {
    return before[p] + begin_microseconds + static_cast<double>(end - from[p]) * plans[p].step_microseconds;
  };
  for (std::size_t p = 1; p < count; ++p) {
    before[p] = std::numeric_limits<double>::infinity();
    for (std::size_t q = 0; q < p; ++q) {
      if (from[q] == from[p] || time(q, from[p]) >= before[p]) continue;
      before[p] = time(q, from[p]), previous[p] = q;
    }
    if (from[p] == 0) before[p] = 0;
  }
  std::size_t last = 0;
  for (std::size_t p = 1; p < count; ++p) {
    if (from[p] < steps && time(p, steps) < time(last, steps)) last = p;
  }
  std::vector<SortedStage> stages;
  for (Index end = steps; last < count; end = from[last], last = previous[last]) {
    stages.push_back({last, from[last], end - from[last]});
  }
  std::ranges::reverse(stages);
  return stages;
}

}  // namespace penstock::plan
