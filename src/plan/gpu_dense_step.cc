#include <algorithm>

#include "base/check.h"
#include "plan/cell_table.h"
#include "plan/gpu_dense.h"

namespace penstock::plan {
namespace {

/// What a step takes on an H200 (docs/results/gpu.md).
struct StepCosts {
  double launch = 5000;        // from a small kernel's start to the next one's, in nanoseconds
  double cached_bytes = 4500;  // of a matrix that stays in the second-level cache, in a nanosecond
  double memory_bytes = 3300;  // of one that does not
  double halves = 400e3;       // multiplications in a nanosecond, few rows at once
  double floats = 60e3;
};

/// Nanoseconds of a step.
double launched_step_time(const GpuDenseProblem& problem, const GpuModel& gpu) {
  const StepCosts cost;
  const CellTraits& cell = cell_traits(problem.cell);
  const double weights = static_cast<double>(problem.hidden) * static_cast<double>(problem.head_size()) * cell.gates();
  const double bytes = weights * size_of(problem.storage);
  const bool cached = bytes < 0.75 * static_cast<double>(gpu.l2_bytes);
  const double reads = bytes / (cached ? cost.cached_bytes : cost.memory_bytes);
  const double products =
      weights * static_cast<double>(problem.rows) / (problem.storage == Storage::f32 ? cost.floats : cost.halves);
  const double values = static_cast<double>(problem.rows) * static_cast<double>(problem.hidden);
  // A product's results and the cell's inputs and results.
  const double of_cell = values * (cell.gates() * (8 + 2 * size_of(problem.storage)) + 12);
  const auto launches = static_cast<double>(cell.phases * (problem.heads + 1));
  return launches * cost.launch + std::max(reads, products) + of_cell / cost.memory_bytes;
}

}  // namespace

GpuDensePlan plan_dense_step(const GpuDenseProblem& problem, const GpuModel& gpu) {
  constexpr int warps = 4;
  constexpr Index most_blocks = (Index{1} << 31) - 1;
  GpuDensePlan plan;
  plan.algorithm = DenseAlgorithm::step;
  plan.slots = 1;
  plan.warps = warps;
  plan.stages = 1;
  plan.slices = problem.rows;
  require(problem.rows <= most_blocks / problem.hidden, "rows x hidden must be at most {}, not {} x {}", most_blocks,
          problem.rows, problem.hidden);
  plan.grid = (problem.rows * problem.hidden + plan.threads() - 1) / plan.threads();
  const double step = launched_step_time(problem, gpu);
  plan.microseconds = step / 1000 * static_cast<double>(problem.steps);
  plan.why = fmt::format("some {:.0f} ns a step", step);
  return plan;
}

}  // namespace penstock::plan
