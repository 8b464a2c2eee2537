// Large layers of scan cells on Hopper: a product by warpgroups with the recurrence as its epilogue.

#include <algorithm>

#include "base/check.h"
#include "plan/gpu/scan_layer_rules.h"

namespace penstock::plan {
namespace {

constexpr int kWarpgroupArchitecture = 90;
constexpr int kTileSteps = 128, kLanesOfWarp = 32, kGroupsOfTime = 4;
constexpr int kCopiedAlignment = 16;  // required by the copy engine
constexpr int kBarrierBytes = 8;

/// Returns the channels of a thread. With all their gates they give up to 256 columns of a tile; two warpgroups hold
/// its sums.
int channels_of_thread(const GpuLayerProblem& problem) { return problem.scan.gates == 2 ? 4 : 2; }

double columns_of(const GpuScanPlan& plan, const GpuLayerProblem& problem) {
  return static_cast<double>(problem.scan.gates) * plan.tile_channels();
}

double epilogue_time(const GpuScanPlan& plan, const GpuLayerProblem& problem, const GpuModel& gpu) {
  const GpuCosts& costs = gpu.costs;
  const Index stages = (problem.input + plan.stage_inputs - 1) / plan.stage_inputs;
  const double products = kTileSteps * columns_of(plan, problem) * static_cast<double>(stages * plan.stage_inputs);
  const double scan = costs.epilogue.step * plan.steps * plan.vector * problem.scan.gates;
  const double of_tile =
      std::max(products / costs.epilogue.products + costs.epilogue.tile + costs.epilogue.share * scan, scan);
  const auto waves = static_cast<double>((plan.tiles + gpu.multiprocessors - 1) / gpu.multiprocessors);
  const double written =
      problem.keep_gates ? recurrence_bytes(problem.scan) : recurrence_bytes(problem.scan) / (problem.scan.gates + 1);
  // With fewer rows and channel tiles than blocks, several blocks work on chunks of one row and wait for each other.
  const auto chains = static_cast<double>(problem.scan.rows * plan.channel_tiles(problem.scan.channels));
  const bool waits = plan.chunks(problem.scan.steps) > 1;
  const double waiting = waits ? 2 * costs.scan.look_back * std::max(0.0, 1 - chains / gpu.multiprocessors) : 0;
  return costs.common.launch + costs.epilogue.launch + waiting +
         std::max((waves * of_tile + scan) / costs.common.clock, written / costs.common.bytes);
}

GpuScanPlan epilogue_shape(const GpuLayerProblem& problem, const GpuModel& gpu, csp::Integer stage_inputs,
                           csp::Integer depth) {
  GpuScanPlan plan;
  plan.algorithm = ScanAlgorithm::epilogue;
  plan.vector = channels_of_thread(problem);
  plan.lanes = kLanesOfWarp, plan.groups = kGroupsOfTime, plan.steps = kTileSteps / kGroupsOfTime;
  plan.stage_inputs = static_cast<int>(stage_inputs), plan.depth = static_cast<int>(depth);
  plan.window = plan.blocks = 1;
  plan.tiles = problem.scan.rows * plan.channel_tiles(problem.scan.channels) * plan.chunks(problem.scan.steps);
  plan.grid = std::min<Index>(plan.tiles, gpu.multiprocessors);
  plan.shared = epilogue_shared_bytes(plan, problem);
  return plan;
}

std::string reason_against(const GpuLayerProblem& problem, const GpuModel& gpu) {
  const GpuScanProblem& scan = problem.scan;
  if (scan.backward) return "a backward pass has no product before it";
  if (gpu.architecture() != kWarpgroupArchitecture) {
    return fmt::format("warpgroups and their copies are of sm_90, and {} is of sm_{}", gpu.name, gpu.architecture());
  }
  if (scan.storage == Storage::f32) return "warpgroups multiply bf16 and f16, not f32";
  if (scan.alignment < kCopiedAlignment || problem.input_alignment < kCopiedAlignment ||
      problem.input * size_of(scan.storage) % kCopiedAlignment != 0 ||
      scan.channels * size_of(scan.storage) % kCopiedAlignment != 0) {
    return fmt::format("the copy engine takes addresses, strides, inputs and channels of multiples of {} bytes",
                       kCopiedAlignment);
  }
  return "";
}

}  // namespace

/// Counts the stages, the gates of a tile, and barriers: two per stage, and two for the gates.
Index epilogue_shared_bytes(const GpuScanPlan& plan, const GpuLayerProblem& problem) {
  const Index size = size_of(problem.scan.storage);
  const Index columns = static_cast<Index>(problem.scan.gates) * plan.tile_channels();
  const Index stage = (columns + kTileSteps) * plan.stage_inputs * size;
  return plan.depth * stage + columns * kTileSteps * size + (2 * plan.depth + 2) * kBarrierBytes;
}

Rule<GpuScanPlan> epilogue_layer_rule(const GpuLayerProblem& problem, const GpuModel& gpu) {
  constexpr Index most_tiles = Index{1} << 30;
  Rule<GpuScanPlan> rule{.name = "epilogue", .refused = reason_against(problem, gpu)};
  if (!rule.refused.empty()) return rule;
  csp::Model& m = rule.model;
  // The copy engine and the tensor cores are fastest with lines of 128 bytes.
  const auto stage_inputs = rule.var("stage_inputs", {64});
  const auto depth = rule.var("stages", csp::range(2, 8));
  const GpuScanPlan any = epilogue_shape(problem, gpu, 64, 2);
  m.require("one launch numbers the tiles",
            csp::Expression(problem.scan.rows) <=
                most_tiles / any.chunks(problem.scan.steps) / any.channel_tiles(problem.scan.channels));
  const auto shared =
      m.call("shared_bytes", {stage_inputs, depth},
             [=](std::span<const csp::Integer> v) { return epilogue_shape(problem, gpu, v[0], v[1]).shared; },
             {0, csp::largest});
  m.require("shared memory holds the stages and a tile's gates", shared <= gpu.block_bytes);
  rule.plan_of = [=](const csp::Solution& solution) {
    const std::vector<csp::Integer>& v = solution.values();
    GpuScanPlan plan = epilogue_shape(problem, gpu, v[0], v[1]);
    plan.microseconds = epilogue_time(plan, problem, gpu);
    return plan;
  };
  m.maximise(depth);  // hides the longest latency; otherwise all take the same time
  return rule;
}

}  // namespace penstock::plan
