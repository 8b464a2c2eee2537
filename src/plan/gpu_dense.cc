#include "plan/gpu_dense.h"

#include <algorithm>
#include <optional>

#include "base/check.h"
#include "plan/cell_table.h"
#include "plan/gpu_dense_rules.h"

namespace penstock::plan {
namespace {

/// Where the choice is open: a block for a head whose matrix it can hold, else the quickest of the others, with the
/// reasons of those that cannot run.
GpuDensePlan plan_quickest(const GpuDenseProblem& problem, const GpuModel& gpu) {
  std::string reasons;
  const auto attempt = [&](auto plan_of) -> std::optional<GpuDensePlan> {
    try {
      return plan_of(problem, gpu);
    } catch (const Error& refused) {
      if (refused.code() != ErrorCode::unsupported) throw;
      reasons += fmt::format("; {}", refused.what());
      return std::nullopt;
    }
  };
  if (const auto head = attempt(plan_dense_head)) return *head;
  GpuDensePlan best = plan_dense_step(problem, gpu);
  for (const auto plan_of : {plan_dense_cluster, plan_dense_chip}) {
    const auto plan = attempt(plan_of);
    if (plan && plan->microseconds < best.microseconds) best = *plan;
  }
  best.why += reasons;
  return best;
}

}  // namespace

std::string_view to_string(DenseAlgorithm algorithm) {
  switch (algorithm) {
    case DenseAlgorithm::automatic:
      return "automatic";
    case DenseAlgorithm::head:
      return "head";
    case DenseAlgorithm::cluster:
      return "cluster";
    case DenseAlgorithm::chip:
      return "chip";
    case DenseAlgorithm::step:
      return "step";
  }
  return "";
}

std::vector<DenseAlgorithm> dense_algorithms() {
  return {DenseAlgorithm::head, DenseAlgorithm::cluster, DenseAlgorithm::chip, DenseAlgorithm::step};
}

std::string GpuDensePlan::explain() const {
  if (algorithm == DenseAlgorithm::step) {
    return fmt::format("step: a matrix product and {} blocks of {} threads for each step; {}", grid, threads(), why);
  }
  if (algorithm == DenseAlgorithm::cluster || algorithm == DenseAlgorithm::chip) {
    const std::string team = clusters == 1 ? "" : fmt::format(", {} of which share a matrix", clusters);
    return fmt::format(
        "{}: {} clusters of {} blocks of {} threads and {} KB{}, each {} rows of a head; a block has {} units, shared "
        "by {} groups of {} warps; {} of {} chunks of the matrix in registers, {} steps of inputs in shared memory; {}",
        to_string(algorithm), grid / cluster, cluster, threads(), shared / 1024, team, slots, 8 * octets, groups, parts,
        resident, chunks, stages, why);
  }
  return fmt::format(
      "{}: {} blocks of {} threads and {} KB, {} at once on a multiprocessor, each {} rows of a head; {} of {} chunks "
      "of the matrix in registers, {} "
      "steps "
      "of inputs in shared memory; {}",
      to_string(algorithm), grid, threads(), shared / 1024, blocks, slots, resident, chunks, stages, why);
}

GpuDensePlan plan_gpu_dense(const GpuDenseProblem& problem, const GpuModel& gpu) {
  constexpr Index most = GpuScanProblem::max_size;
  require(problem.rows >= 1 && problem.steps >= 1 && problem.hidden >= 1,
          "rows, steps and hidden must be at least 1, not {}, {} and {}", problem.rows, problem.steps, problem.hidden);
  require(std::max({problem.rows, problem.steps, problem.hidden}) <= most,
          "rows, steps and hidden must each be at most {}", most);
  require(problem.heads >= 1 && problem.hidden % problem.heads == 0, "heads ({}) must divide hidden ({})",
          problem.heads, problem.hidden);
  const CellTraits& cell = cell_traits(problem.cell);
  require(!cell.info.scan, "{} is a scan cell and has no recurrent matrix", problem.cell);
  require(problem.hidden * cell.gates() <= most, "the gates of hidden {} must be at most {} values", problem.hidden,
          most);
  switch (problem.algorithm) {
    case DenseAlgorithm::head:
      return plan_dense_head(problem, gpu);
    case DenseAlgorithm::cluster:
      return plan_dense_cluster(problem, gpu);
    case DenseAlgorithm::chip:
      return plan_dense_chip(problem, gpu);
    case DenseAlgorithm::step:
      return plan_dense_step(problem, gpu);
    case DenseAlgorithm::automatic:
      break;
  }
  return plan_quickest(problem, gpu);
}

}  // namespace penstock::plan
