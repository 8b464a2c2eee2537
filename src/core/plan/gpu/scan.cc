#include "plan/gpu/scan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "base/names.h"
#include "base/plural.h"
#include "plan/gpu/scan_rules.h"
#include "plan/tuning.h"

namespace penstock::plan {
namespace {

constexpr Index kWindowWords = 512;  // words that a block reads in a look-back, one or two per thread
constexpr Index kPassedBytes = 16;   // bytes per channel and chunk: a state and a gain, with their tags
constexpr Index kHeaderBytes = 256;
constexpr Index kMaxTiles = std::numeric_limits<std::int32_t>::max();

constexpr Names<3> kStorages = {"f32", "bf16", "f16"};
constexpr Names<5> kScanAlgorithms = {"auto", "direct", "epilogue", "fused", "scan"};

constexpr int inputs_of(const GpuScanProblem& problem) {
  return problem.backward ? problem.read_back + 2 : problem.gates;
}

}  // namespace

/// Counts the values of a tile; gain and offset of every group and the carry, twice; the three numbers of the window;
/// the effect of the chunk; the epoch and the tickets.
Index scan_shared_bytes(const GpuScanPlan& plan, const GpuScanProblem& problem) {
  const Index values = inputs_of(problem) * plan.steps * plan.threads() * plan.vector * size_of(problem.storage);
  return values + 4 * (plan.tile_channels() * (2 * (2 * plan.groups + 1) + 3 * plan.window + 2) + 3);
}

double scan_microseconds(const GpuScanPlan& plan, const GpuScanProblem& problem, const GpuModel& gpu) {
  const GpuCosts& costs = gpu.costs;
  const int values = problem.backward ? problem.read_back + 2 + problem.gates : problem.gates + 1;
  const double traffic = static_cast<double>(problem.rows) * static_cast<double>(problem.steps) *
                         static_cast<double>(problem.channels) * values * size_of(problem.storage);
  if (plan.algorithm == ScanAlgorithm::direct) {
    // Threads wait for batches of steps, and all of them for memory.
    const auto batches = static_cast<double>((problem.steps + plan.steps - 1) / plan.steps);
    const double batch = problem.backward ? costs.scan.back_steps_ahead : costs.scan.steps_ahead;
    return costs.common.launch + std::hypot(traffic / costs.scan.direct_bytes, batches * batch);
  }
  // A tile takes as long if few of its steps exist.
  const double tile = costs.scan.tile + static_cast<double>(plan.chunk() * plan.tile_channels()) * problem.gates *
                                            (problem.backward ? costs.scan.back_gate : costs.scan.gate);
  const double halves = problem.backward && problem.storage != Storage::f32 ? costs.scan.back_halves : 0;
  const double others = static_cast<double>(plan.tiles) / static_cast<double>(plan.grid) - 1;
  return costs.common.launch + costs.scan.look_back + halves + std::max(traffic / costs.scan.bytes, others * tile);
}

int fitting_vector(const GpuScanProblem& problem, int wished) {
  int vector = wished;
  while (vector > 1 &&
         (problem.alignment % (vector * size_of(problem.storage)) != 0 || problem.channels % vector != 0)) {
    vector /= 2;
  }
  return vector;
}

std::string_view to_string(Storage storage) { return name_of(kStorages, storage); }
std::string_view to_string(ScanAlgorithm algorithm) { return name_of(kScanAlgorithms, algorithm); }
ScanAlgorithm parse_scan_algorithm(std::string_view text) {
  return parse_name<ScanAlgorithm>("algorithm", kScanAlgorithms, text);
}

Index GpuScanPlan::workspace_bytes() const {
  return algorithm == ScanAlgorithm::scan || algorithm == ScanAlgorithm::epilogue
             ? kHeaderBytes + tiles * tile_channels() * kPassedBytes
             : 0;
}

std::string GpuScanPlan::explain() const {
  if (algorithm == ScanAlgorithm::direct) {
    return fmt::format("direct: {} of a row and {} channels in {} of {} threads ({} x {}), {} asked for at once: {}",
                       counted(tiles, "tile"), tile_channels(), counted(grid, "block"), threads(), groups, lanes,
                       counted(steps, "step"), why);
  }
  if (algorithm == ScanAlgorithm::fused) {
    return fmt::format(
        "fused: product, gates and recurrence in one launch of {} of {} threads ({} x {}), chunks of {} x {} channels, "
        "{} KB of shared memory, {} a multiprocessor: {}",
        counted(grid, "block"), threads(), groups, lanes, counted(chunk(), "step"), tile_channels(), shared / 1024,
        counted(blocks, "block"), why);
  }
  if (algorithm == ScanAlgorithm::epilogue) {
    return fmt::format(
        "epilogue: {}, {} x {} channels with all gates, multiplied by warpgroups in {}, {} of {} inputs, {} KB of "
        "shared memory, the recurrence as their epilogue: {}",
        counted(tiles, "tile"), counted(chunk(), "step"), tile_channels(), counted(grid, "block"),
        counted(depth, "stage"), stage_inputs, shared / 1024, why);
  }
  return fmt::format(
      "scan with look-back over {}, {} x {} channels, in {} of {} threads ({} x {}), {} an access, {} KB of shared "
      "memory, {} a multiprocessor: {}",
      counted(tiles, "tile"), counted(chunk(), "step"), tile_channels(), counted(grid, "block"), threads(), groups,
      lanes, counted(vector, "value"), shared / 1024, counted(blocks, "block"), why);
}

GpuScanPlan complete(GpuScanPlan plan, const GpuScanProblem& problem, const GpuModel& gpu) {
  const Index rows_and_channels = problem.rows * plan.channel_tiles(problem.channels);
  const Index chunks = plan.chunks(problem.steps);
  require(rows_and_channels <= kMaxTiles / chunks,
          "rows x steps x channels must fit {} tiles of {} steps x {} channels; {} x {} x {} needs more", kMaxTiles,
          plan.chunk(), plan.tile_channels(), problem.rows, problem.steps, problem.channels);
  plan.tiles = rows_and_channels * chunks;
  plan.window = static_cast<int>(std::clamp<Index>(kWindowWords / plan.tile_channels(), 8, 16));
  const Index size = size_of(problem.storage);
  plan.piece = 16;
  while (problem.alignment % plan.piece != 0 || problem.channels * size % plan.piece != 0 ||
         plan.tile_channels() * size % plan.piece != 0) {
    plan.piece /= 2;
  }
  plan.shared = scan_shared_bytes(plan, problem);
  require(plan.shared <= gpu.block_bytes, "a block must need at most the {} bytes of shared memory of {}, not {}",
          gpu.block_bytes, gpu.name, plan.shared);
  plan.blocks = std::clamp(static_cast<int>(gpu.shared_bytes / (plan.shared + kReservedBytes)), 1,
                           std::min(plan.blocks, gpu.threads / plan.threads()));
  plan.grid = std::min<Index>(plan.tiles, static_cast<Index>(plan.blocks) * gpu.multiprocessors);
  return plan;
}

GpuScanPlan plan_gpu_scan(const GpuScanProblem& problem, const GpuModel& gpu) {
  require(problem.rows >= 1 && problem.steps >= 1 && problem.channels >= 1,
          "rows, steps and channels must be at least 1, not {}, {} and {}", problem.rows, problem.steps,
          problem.channels);
  require(std::max({problem.rows, problem.steps, problem.channels}) <= GpuScanProblem::max_size,
          "rows, steps and channels must each be at most {}, not {}, {} and {}", GpuScanProblem::max_size, problem.rows,
          problem.steps, problem.channels);
  if (problem.algorithm == ScanAlgorithm::fused || problem.algorithm == ScanAlgorithm::epilogue) {
    fail(ErrorCode::unsupported, "the {} algorithm is for forward passes of layers: {} has no product to fuse",
         to_string(problem.algorithm), problem.backward ? "a backward pass" : "a recurrence by itself");
  }
  const auto ranked = [&] {
    std::optional<GpuScanPlan> best;
    std::string reasons, others;
    for (const Rule<GpuScanPlan>& rule : {direct_scan_rule(problem, gpu), chunked_scan_rule(problem, gpu)}) {
      const std::optional<GpuScanPlan> plan = best_plan(rule);
      if (!plan) {
        reasons += fmt::format("; {}: {}", rule.name, fmt::join(conflict_of(rule), ", "));
        continue;
      }
      const bool quicker = !best || plan->microseconds < best->microseconds;
      if (best) {
        const GpuScanPlan& other = quicker ? *best : *plan;
        others = fmt::format("; {} estimated at {:.0f} us", to_string(other.algorithm), other.microseconds);
      }
      if (quicker) best = plan;
    }
    if (best) {
      best->why += others;
      return *best;
    }
    fail(ErrorCode::invalid_argument, "there is no plan for {} rows, {} steps and {} channels on {}{}", problem.rows,
         problem.steps, problem.channels, gpu.name, reasons);
  };
  const auto make = [&] {
    if (problem.algorithm != ScanAlgorithm::automatic) return ranked();
    return plan_as_measured<GpuScanPlan>(
        problem, gpu, [&] { return scan_rules(problem, gpu); }, ranked);
  };
  static PlanMemo<GpuScanProblem, GpuModel, GpuScanPlan> memo;
  return measuring() ? make() : memo.get(problem, gpu, make);
}

std::vector<ScanAlgorithmRule> scan_rules(const GpuScanProblem& problem, const GpuModel& gpu) {
  GpuScanProblem direct = problem, chunked = problem;
  direct.algorithm = ScanAlgorithm::direct, chunked.algorithm = ScanAlgorithm::scan;
  std::vector<ScanAlgorithmRule> rules;
  rules.push_back(direct_scan_rule(direct, gpu));
  rules.push_back(chunked_scan_rule(chunked, gpu));
  return rules;
}

}  // namespace penstock::plan
