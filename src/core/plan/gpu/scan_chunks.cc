// Blocks compute chunks of T in parallel and pass the state on.

#include <fmt/format.h>

#include <algorithm>

#include "plan/gpu/scan_rules.h"

namespace penstock::plan {
namespace {

constexpr int kNewerArchitecture = 100;

/// The best measured shapes (docs/results/gpu.md): bytes of one access, and of all values of a thread in one tile.
/// Tiles are large compared with the values that blocks pass to each other.
struct ScanShapeChoice {
  int access_bytes, steps, threads;
  bool keep = false;
};

/// Returns the best shape for rules that compute a and b.
ScanShapeChoice best_for_cells(const GpuScanProblem& problem, bool ragged) {
  const bool wide = problem.storage == Storage::f32, two = problem.gates == 2;
  if (problem.backward) {
    if (ragged) return {4, two ? 16 : 8, 256};
    if (wide) return {8, two ? 16 : 12, 256};
    return {4, two ? 32 : 24, 256};
  }
  if (ragged) return {4, 16, 256, true};
  return {4, problem.logarithms ? 24 : 32, wide ? 512 : 256, true};
}

ScanShapeChoice best_shape(const GpuScanProblem& problem) {
  // Lengths and resets need registers that values could use.
  const bool ragged = problem.lengths || problem.reset;
  if (problem.computed) return best_for_cells(problem, ragged);
  if (ragged) return {4, 16, 512};
  if (problem.backward)
    return problem.storage == Storage::f32 ? ScanShapeChoice{4, 16, 512} : ScanShapeChoice{4, 32, 256};
  return {4, 32, 512};
}

GpuScanPlan chunk_shape(const GpuScanProblem& problem, const ScanShapeChoice& best, csp::Integer vector,
                        csp::Integer steps) {
  GpuScanPlan plan;
  plan.vector = static_cast<int>(vector), plan.steps = static_cast<int>(steps);
  plan.keep = best.keep;
  plan.blocks = 1;
  share_threads(plan, problem, best.threads);
  return plan;
}

/// Returns the numbers of steps of a thread, up to the measured best. It was measured on one chip; others have less
/// shared memory, or their compiler needs more registers. The numbers are multiples of 4, because copies are up to four
/// times as wide as the accesses of a thread per step.
csp::Domain step_counts(const GpuScanProblem& problem, const GpuModel& gpu, const ScanShapeChoice& best) {
  const auto reduced = [](int steps, int share) { return std::max(4, steps * share / 16 * 4); };
  int steps = best.steps;
  if (gpu.architecture() >= kNewerArchitecture) {
    const int vector = fitting_vector(problem, best.access_bytes / size_of(problem.storage));
    const bool few_lanes = chunk_shape(problem, best, vector, steps).lanes < 32;
    const bool crowded = best.keep && best.threads == 512;  // at 24 steps a thread needs all available registers
    steps = reduced(steps, few_lanes ? 1 : crowded ? 2 : 3);
  }
  std::vector<csp::Integer> all = {steps};
  while (all.back() > 4) all.push_back(reduced(static_cast<int>(all.back()), 2));
  return csp::Domain(all);
}

std::string why_chunks(const GpuScanProblem& problem, const ScanShapeChoice& best, const GpuScanPlan& plan) {
  const std::string why =
      plan.vector * size_of(problem.storage) == best.access_bytes
          ? "as measured fastest for this storage"
          : fmt::format(
                "narrower accesses than fastest, since addresses and strides are multiples of {} bytes and C is {}",
                problem.alignment, problem.channels);
  return problem.algorithm == ScanAlgorithm::scan ? "asked for, " + why : why;
}

}  // namespace

ScanAlgorithmRule chunked_scan_rule(const GpuScanProblem& problem, const GpuModel& gpu) {
  ScanAlgorithmRule rule{.name = "scan"};
  if (problem.algorithm == ScanAlgorithm::direct) {
    rule.refused = "direct was asked for";
    return rule;
  }
  const ScanShapeChoice best = best_shape(problem);
  const auto vector = access_variable(rule, problem, best.access_bytes);
  const auto steps = rule.var("steps", step_counts(problem, gpu, best));
  const auto shared = rule.model.call("shared_bytes", {vector, steps},
                                      [=](std::span<const csp::Integer> v) {
                                        return scan_shared_bytes(chunk_shape(problem, best, v[0], v[1]), problem);
                                      },
                                      {0, csp::largest});
  rule.model.require("shared memory holds a tile", shared <= gpu.block_bytes);
  // Wide accesses first, then large tiles, for which the values passed between blocks are few.
  rule.model.maximise(vector * 1024 + steps);
  rule.plan_of = [=](const csp::Solution& solution) {
    const std::vector<csp::Integer>& v = solution.values();
    GpuScanPlan plan = complete(chunk_shape(problem, best, v[0], v[1]), problem, gpu);
    plan.microseconds = scan_microseconds(plan, problem, gpu);
    plan.why = why_chunks(problem, best, plan);
    return plan;
  };
  return rule;
}

}  // namespace penstock::plan
