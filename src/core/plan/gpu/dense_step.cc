#include <algorithm>

#include "base/check.h"
#include "plan/cell_table.h"
#include "plan/gpu/dense_rules.h"

namespace penstock::plan {
namespace {

/// Returns the nanoseconds of a step.
double launched_step_time(const GpuDenseProblem& problem, const GpuModel& gpu) {
  const GpuCosts& cost = gpu.costs;
  const CellTraits& cell = cell_traits(problem.cell);
  const double weights = static_cast<double>(problem.hidden) * static_cast<double>(problem.head_size()) * cell.gates();
  const double bytes = weights * size_of(problem.storage);
  const bool cached = bytes < cost.step.resident_share * static_cast<double>(gpu.l2_bytes);
  const double memory_bytes = cost.common.bytes / 1000;
  constexpr int aligned = 16;
  const double rate = problem.alignment < aligned ? cost.step.unaligned : cost.common.l2_bytes;
  const double reads = bytes / (cached ? rate : std::min(rate, memory_bytes));
  const bool floats = problem.storage == Storage::f32;
  const double products =
      1000 * weights * static_cast<double>(problem.rows) / (floats ? cost.step.floats : cost.step.halves) +
      (floats ? cost.step.depth * static_cast<double>(problem.head_size()) : 0);
  const double values = static_cast<double>(problem.rows) * static_cast<double>(problem.hidden);
  // Bytes of the results of the product, and of the inputs and results of the cell.
  const double of_cell = values * (cell.gates() * (8 + 2 * size_of(problem.storage)) + 12);
  const auto launches = static_cast<double>(cell.phases * (problem.heads + 1));
  return launches * cost.step.launch + std::max(reads, products) + of_cell / memory_bytes;
}

GpuDensePlan step_plan(const GpuDenseProblem& problem, const GpuModel& gpu, int warps) {
  GpuDensePlan plan;
  plan.algorithm = DenseAlgorithm::step;
  plan.slots = 1;
  plan.warps = warps;
  plan.stages = 1;
  plan.slices = problem.rows;
  const bool means = cell_traits(problem.cell).averages;
  plan.grid =
      means ? problem.rows * problem.heads : (problem.rows * problem.hidden + plan.threads() - 1) / plan.threads();
  const double step = launched_step_time(problem, gpu);
  plan.microseconds = step / 1000 * static_cast<double>(problem.steps);
  plan.why = fmt::format("a step takes about {:.0f} ns", step);
  return plan;
}

}  // namespace

DenseRule dense_step_rule(const GpuDenseProblem& problem, const GpuModel& gpu) {
  constexpr Index most_values = (Index{1} << 31) - 1;
  require(problem.rows <= most_values / problem.hidden, "rows x hidden must be at most {}, not {} x {}", most_values,
          problem.rows, problem.hidden);
  DenseRule rule{.name = "step"};
  constexpr Index warp = 32, most_units = 1024;  // of a block
  const bool means = cell_traits(problem.cell).averages;
  if (means && problem.head_size() > most_units) {
    rule.refused = fmt::format(
        "the units of {} read means over their head, which one block computes for at most {} units, not {}: use at "
        "least {} heads, or a CPU",
        problem.cell, most_units, problem.head_size(), (problem.hidden + most_units - 1) / most_units);
    return rule;
  }
  const auto of_head = static_cast<csp::Integer>((problem.head_size() + warp - 1) / warp);
  const auto warps = rule.var("warps", means ? csp::Domain({of_head}) : csp::powers_of_two(1, 8));
  // Estimates are equal for all block sizes; the measured size comes first.
  rule.model.minimise([=](const csp::Box& at) {
    const csp::Interval beyond = at(warps) - gpu.costs.step.warps;
    return csp::max(beyond, csp::Interval(0) - beyond);
  });
  rule.plan_of = [=](const csp::Solution& solution) {
    return step_plan(problem, gpu, static_cast<int>(solution.values()[0]));
  };
  return rule;
}

}  // namespace penstock::plan
