// Layers of scan cells in one launch: product, gates and recurrence.

#include <algorithm>

#include "base/check.h"
#include "plan/gpu/scan_layer_rules.h"

namespace penstock::plan {
namespace {

constexpr double kCopiedBytes = 16;  // bytes per copy
constexpr int kFusedSteps = 8, kMaxFusedThreads = 512, kMaxFusedGroups = 64, kMaxLanes = 32;

/// Returns the registers of a block, in whole warps: sums, values of x and of the weights, and the rest.
int fused_registers(const GpuScanPlan& plan, const GpuLayerProblem& problem) {
  const int sums = plan.steps * plan.vector * std::max(problem.scan.gates, 2);
  const int of_thread =
      sums + plan.steps * size_of(problem.scan.storage) + 4 * plan.vector + 48 + 8 * problem.scan.gates;
  return (of_thread + 7) / 8 * 8 * ((plan.threads() + 31) / 32 * 32);
}

/// Returns the number of thread groups that have a step.
Index groups_of(const GpuLayerProblem& problem) { return (problem.scan.steps + kFusedSteps - 1) / kFusedSteps; }

/// Returns the cycles of the products of a chunk: the largest of arithmetic, shared memory (128 bytes per cycle) and
/// the latency of one warp.
double chunk_product_cycles(const GpuScanPlan& plan, const GpuLayerProblem& problem, const GpuModel& gpu) {
  const Index threads = std::min<Index>(plan.threads(), plan.lanes * groups_of(problem));
  const auto warps = static_cast<double>((threads + 31) / 32);
  const int gates = problem.scan.gates;
  const double arithmetic = 4.0 * plan.steps * plan.vector * gates;
  const int weight_reads = (std::min(plan.lanes, 32) * plan.vector * 4 + 127) / 128;
  const double reads = plan.steps + 4.0 * gates * weight_reads;
  const double issued = (warps + 3) / 4 * (arithmetic + plan.steps + 4.0 * gates);
  const auto fours = static_cast<double>((problem.input + 3) / 4);
  return fours * std::max({issued, warps * reads, arithmetic + gpu.costs.fused.four_inputs});
}

double fused_time(const GpuScanPlan& plan, const GpuLayerProblem& problem, const GpuModel& gpu) {
  const auto chunks = static_cast<double>(plan.chunks(problem.scan.steps)),
             threads = static_cast<double>(plan.threads());
  const auto input = static_cast<double>(problem.input);
  const double columns = static_cast<double>(problem.scan.gates) * plan.tile_channels();
  const double copies = static_cast<double>(plan.chunk()) * input * size_of(problem.scan.storage) / kCopiedBytes;
  const double of_chunk = chunk_product_cycles(plan, problem, gpu) + gpu.costs.fused.chunk +
                          gpu.costs.fused.chunk_group * plan.groups + copies / threads * gpu.costs.fused.input_copy;
  const auto waves = static_cast<double>((plan.grid + gpu.multiprocessors - 1) / gpu.multiprocessors);
  const double cycles = waves * (chunks * of_chunk + columns * input / threads * gpu.costs.fused.weight);
  const double written =
      problem.keep_gates ? recurrence_bytes(problem.scan) : recurrence_bytes(problem.scan) / (problem.scan.gates + 1);
  return gpu.costs.common.launch + gpu.costs.fused.launch +
         std::max(cycles / gpu.costs.common.clock, written / gpu.costs.common.bytes);
}

/// Returns the shape of a block, whether or not it fits.
GpuScanPlan fused_shape(const GpuLayerProblem& problem, csp::Integer vector, csp::Integer lanes, csp::Integer groups) {
  GpuScanPlan plan;
  plan.algorithm = ScanAlgorithm::fused;
  plan.vector = static_cast<int>(vector), plan.lanes = static_cast<int>(lanes);
  plan.groups = static_cast<int>(groups), plan.steps = kFusedSteps;
  plan.window = plan.blocks = 1;
  plan.tiles = plan.grid = problem.scan.rows * plan.channel_tiles(problem.scan.channels);
  plan.shared = fused_shared_bytes(plan, problem);
  return plan;
}

/// Returns a lower bound of the time of plans with variables in these ranges: fused_time() with the best value of each.
double least_fused_time(const GpuLayerProblem& problem, const GpuModel& gpu, csp::Range vector, csp::Range lanes,
                        csp::Range groups) {
  const GpuCosts::Common& common = gpu.costs.common;
  const GpuCosts::Fused& costs = gpu.costs.fused;
  const auto input = static_cast<double>(problem.input);
  const double product = chunk_product_cycles(fused_shape(problem, vector.low, lanes.low, groups.low), problem, gpu);
  const double copies = kFusedSteps * input * size_of(problem.scan.storage) / kCopiedBytes;
  const double of_chunk = product + costs.chunk + costs.chunk_group * static_cast<double>(groups.low) +
                          copies / static_cast<double>(lanes.high) * costs.input_copy;
  const GpuScanPlan widest = fused_shape(problem, vector.high, lanes.high, groups.high);
  const auto waves = static_cast<double>((widest.grid + gpu.multiprocessors - 1) / gpu.multiprocessors);
  const double weights =
      static_cast<double>(problem.scan.gates * vector.low) * input / static_cast<double>(groups.high) * costs.weight;
  constexpr double rounding = 1 - 1e-12;  // these sums have another order than those of complete plans
  const auto chunks = static_cast<double>(widest.chunks(problem.scan.steps));
  return common.launch + costs.launch + waves * (chunks * of_chunk + weights) / common.clock * rounding;
}

}  // namespace

Index fused_shared_bytes(const GpuScanPlan& plan, const GpuLayerProblem& problem) {
  const Index padded = (problem.input + 3) / 4 * 4;
  const Index columns = static_cast<Index>(problem.scan.gates) * plan.tile_channels();
  const Index pitch = columns + (columns % 32 == 0 ? plan.vector : 0);
  const Index weights = (padded * pitch * 4 + 15) / 16 * 16;
  const Index row = (padded * size_of(problem.scan.storage) + 15) / 16 * 16;
  const Index group = plan.steps * row + 16;
  const Index stretches = static_cast<Index>(2 * plan.groups + 2) * plan.tile_channels() * 4;
  return (weights + 2 * plan.groups * group + stretches + 15) / 16 * 16;
}

Rule<GpuScanPlan> fused_layer_rule(const GpuLayerProblem& problem, const GpuModel& gpu) {
  constexpr Index most_blocks = Index{1} << 30;
  Rule<GpuScanPlan> rule{.name = "fused"};
  if (problem.scan.backward) {
    rule.refused = "a backward pass has no product to fuse";
    return rule;
  }
  csp::Model& m = rule.model;
  // With four channels there are registers for too few threads. Two blocks of half the size, one of which multiplies
  // while the other does the rest, were not faster than one.
  const auto vector = rule.var("vector", csp::range(1, fitting_vector(problem.scan, 2)));
  const auto lanes = rule.var("lanes", csp::range(1, kMaxLanes));
  const auto groups = rule.var("groups", csp::range(1, kMaxFusedGroups));
  m.require("one launch numbers the blocks", csp::Expression(problem.scan.rows) <= most_blocks / problem.scan.channels);
  m.require("every lane has a channel", lanes == 1 || (lanes - 1) * vector < problem.scan.channels);
  // Groups without a step help only to load the weights; limit their number.
  m.require("groups have steps, or weights to bring", groups <= csp::max(groups_of(problem), 256 / lanes));
  m.require("a block has at most 512 threads", lanes * groups <= kMaxFusedThreads);
  const auto registers = m.call("registers", {vector, lanes, groups},
                                [=](std::span<const csp::Integer> v) {
                                  return csp::Integer{fused_registers(fused_shape(problem, v[0], v[1], v[2]), problem)};
                                },
                                {0, csp::largest});
  m.require("registers hold the sums", registers <= gpu.registers);
  const auto shared =
      m.call("shared_bytes", {vector, lanes, groups},
             [=](std::span<const csp::Integer> v) { return fused_shape(problem, v[0], v[1], v[2]).shared; },
             {0, csp::largest});
  m.require("shared memory holds the weights and a chunk of x", shared <= gpu.block_bytes);
  rule.plan_of = [=](const csp::Solution& solution) {
    const std::vector<csp::Integer>& v = solution.values();
    GpuScanPlan plan = fused_shape(problem, v[0], v[1], v[2]);
    plan.microseconds = fused_time(plan, problem, gpu);
    return plan;
  };
  m.minimise([plan_of = rule.plan_of](const csp::Solution& solution) { return plan_of(solution).microseconds; },
             [=](const csp::Box& at) {
               return least_fused_time(problem, gpu, at.range(vector), at.range(lanes), at.range(groups));
             });
  return rule;
}

}  // namespace penstock::plan
