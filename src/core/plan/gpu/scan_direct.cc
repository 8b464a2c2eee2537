// A thread runs all steps of its channels, without exchange between threads.

#include "plan/gpu/scan_rules.h"

#include <fmt/format.h>

namespace penstock::plan {
namespace {

constexpr int kDirectThreads = 128;
/// Steps that a thread loads at once, and blocks per multiprocessor.
constexpr int kDirectAhead = 8, kDirectBlocks = 4;
constexpr int kLogarithmsAhead = 4;  // backward: exponentials need registers that values could use

GpuScanPlan direct_shape(const GpuScanProblem& problem, csp::Integer vector) {
  GpuScanPlan plan;
  plan.algorithm = ScanAlgorithm::direct;
  plan.vector = static_cast<int>(vector);
  share_threads(plan, problem, kDirectThreads);
  plan.steps = problem.logarithms && problem.backward ? kLogarithmsAhead : kDirectAhead;
  plan.blocks = kDirectBlocks;
  plan.piece = size_of(problem.storage);  // there are no copies
  plan.window = 1;
  plan.tiles = problem.rows * plan.channel_tiles(problem.channels);
  plan.grid = (plan.tiles + plan.groups - 1) / plan.groups;
  return plan;
}

}  // namespace

ScanAlgorithmRule direct_scan_rule(const GpuScanProblem& problem, const GpuModel& gpu) {
  ScanAlgorithmRule rule{.name = "direct"};
  if (problem.algorithm == ScanAlgorithm::scan) {
    rule.refused = "a scan was asked for";
    return rule;
  }
  const bool asked = problem.algorithm == ScanAlgorithm::direct;
  const auto vector = access_variable(rule, problem, 4);
  const auto tiles = rule.model.call("tiles", {vector},
                                     [=](std::span<const csp::Integer> v) { return direct_shape(problem, v[0]).tiles; },
                                     {0, csp::largest});
  rule.model.require("one launch numbers the tiles", tiles <= kMaxScanTiles);
  rule.model.maximise(vector);
  rule.plan_of = [=](const csp::Solution& solution) {
    GpuScanPlan plan = direct_shape(problem, solution.values()[0]);
    plan.microseconds = scan_microseconds(plan, problem, gpu);
    plan.why = asked ? "asked for" : fmt::format("estimated at {:.0f} us", plan.microseconds);
    return plan;
  };
  return rule;
}

}  // namespace penstock::plan
