#include "plan/gpu_layer.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/check.h"
#include "plan/gpu_product.h"

namespace penstock::plan {
namespace {

/// What the estimates are made of: an H200's figures, as measured (docs/results/gpu.md), in microseconds.
constexpr double kMultiprocessors = 132, kCyclesOfMicrosecond = 1700;
constexpr double kLaunch = 3, kProduct = 3, kLookBack = 5, kStepsAhead = 0.65;
constexpr double kBytes = 3.3e6, kDirectBytes = 0.85e6;  // of memory, per microsecond
constexpr double kTf32 = 350e6, kHalves = 7e8;           // multiplications and additions of a product
constexpr double kInputs = 0.005;                        // of a product, however small it is
/// Cycles of a fused block: around four inputs of a step; around a chunk, and for each of its groups; of a thread for
/// bringing a weight, or a copy of x, to shared memory.
constexpr double kFourInputs = 150, kChunkCost = 4000, kGroup = 60, kWeight = 120, kCopy = 60;
constexpr double kPiece = 16;  // bytes of a copy
constexpr int kFusedSteps = 8, kMaxFusedThreads = 512, kMaxFusedGroups = 64;

double scaled(const GpuModel& gpu) { return gpu.multiprocessors / kMultiprocessors; }

double flops_of(const GpuLayerProblem& problem) {
  const GpuScanProblem& scan = problem.scan;
  return 2.0 * static_cast<double>(scan.rows) * static_cast<double>(scan.steps) *
         static_cast<double>(scan.gates * scan.channels) * static_cast<double>(problem.input);
}

double bytes_of(const GpuScanProblem& scan) {
  return static_cast<double>(scan.rows) * static_cast<double>(scan.steps) * static_cast<double>(scan.channels) *
         (scan.gates + 1) * size_of(scan.storage);
}

double product_bytes(const GpuLayerProblem& problem) {
  const GpuScanProblem& scan = problem.scan;
  return static_cast<double>(scan.rows) * static_cast<double>(scan.steps) *
         static_cast<double>(problem.input + scan.gates * scan.channels) * size_of(scan.storage);
}

/// Microseconds of the input's product.
double product_time(const GpuLayerProblem& problem, const GpuModel& gpu) {
  const GpuScanProblem& scan = problem.scan;
  if (scan.storage == Storage::f32 && !problem.tf32) {
    GpuProductProblem product{.m = scan.rows * scan.steps, .n = scan.gates * scan.channels, .k = problem.input};
    product.b_transposed = product.one_slab = true;
    return plan_gpu_product(product, gpu).cycles / kCyclesOfMicrosecond;
  }
  const double rate = problem.tf32 ? kTf32 : kHalves;
  return std::max({static_cast<double>(problem.input) * kInputs, flops_of(problem) / (rate * scaled(gpu)),
                   product_bytes(problem) / (kBytes * scaled(gpu))});
}

/// Microseconds of a product by itself and of the recurrence behind it.
double separate_time(const GpuLayerProblem& problem, const GpuScanPlan& plan, const GpuModel& gpu) {
  const double traffic = bytes_of(problem.scan) / scaled(gpu);
  const auto steps = static_cast<double>(problem.scan.steps);
  const double walk = plan.regime == Regime::direct ? std::max(traffic / kDirectBytes, steps / plan.steps * kStepsAhead)
                                                    : kLookBack + traffic / kBytes;
  return kProduct + product_time(problem, gpu) + kLaunch + walk;
}

/// Registers of a block, which come by the warp: sums, what a thread reads of x and of the weights, and the rest.
int fused_registers(const GpuScanPlan& plan, const GpuLayerProblem& problem) {
  const int sums = plan.steps * plan.vector * std::max(problem.scan.gates, 2);
  const int of_thread =
      sums + plan.steps * size_of(problem.scan.storage) + 4 * plan.vector + 48 + 8 * problem.scan.gates;
  return (of_thread + 7) / 8 * 8 * ((plan.threads() + 31) / 32 * 32);
}

/// Groups of threads that have a step at all.
Index groups_of(const GpuLayerProblem& problem) { return (problem.scan.steps + kFusedSteps - 1) / kFusedSteps; }

/// Cycles of the products of a chunk: arithmetic, shared memory (128 bytes a cycle), or one warp's waiting, whichever
/// takes longest.
double chunk_product_cycles(const GpuScanPlan& plan, const GpuLayerProblem& problem) {
  const Index threads = std::min<Index>(plan.threads(), plan.lanes * groups_of(problem));
  const auto warps = static_cast<double>((threads + 31) / 32);
  const int gates = problem.scan.gates;
  const double arithmetic = 4.0 * plan.steps * plan.vector * gates;
  const int weight_reads = (std::min(plan.lanes, 32) * plan.vector * 4 + 127) / 128;
  const double reads = plan.steps + 4.0 * gates * weight_reads;
  const double issued = (warps + 3) / 4 * (arithmetic + plan.steps + 4.0 * gates);
  const auto fours = static_cast<double>((problem.input + 3) / 4);
  return fours * std::max({issued, warps * reads, arithmetic + kFourInputs});
}

double fused_time(const GpuScanPlan& plan, const GpuLayerProblem& problem, const GpuModel& gpu) {
  const auto chunks = static_cast<double>(plan.chunks(problem.scan.steps)),
             threads = static_cast<double>(plan.threads());
  const auto input = static_cast<double>(problem.input);
  const double columns = static_cast<double>(problem.scan.gates) * plan.tile_channels();
  const double copies = static_cast<double>(plan.chunk()) * input * size_of(problem.scan.storage) / kPiece;
  const double of_chunk =
      chunk_product_cycles(plan, problem) + kChunkCost + kGroup * plan.groups + copies / threads * kCopy;
  const auto waves = static_cast<double>((plan.grid + gpu.multiprocessors - 1) / gpu.multiprocessors);
  const double cycles = waves * (chunks * of_chunk + columns * input / threads * kWeight);
  const double written =
      problem.keep_gates ? bytes_of(problem.scan) : bytes_of(problem.scan) / (problem.scan.gates + 1);
  return kLaunch + std::max(cycles / kCyclesOfMicrosecond, written / (kBytes * scaled(gpu)));
}

std::optional<GpuScanPlan> fused_candidate(const GpuLayerProblem& problem, const GpuModel& gpu, int vector, int lanes,
                                           int groups) {
  GpuScanPlan plan;
  plan.regime = Regime::fused;
  plan.vector = vector, plan.lanes = lanes, plan.groups = groups, plan.steps = kFusedSteps;
  plan.window = plan.blocks = 1;
  plan.tiles = plan.grid = problem.scan.rows * plan.channel_tiles(problem.scan.channels);
  plan.shared = fused_shared_bytes(plan, problem);
  if (plan.threads() > kMaxFusedThreads || fused_registers(plan, problem) > gpu.registers) return std::nullopt;
  if (plan.shared > gpu.block_bytes) return std::nullopt;
  return plan;
}

/// Calls take(plan, microseconds) for every shape of a block that fits.
template <class Take>
void for_each_fused(const GpuLayerProblem& problem, const GpuModel& gpu, const Take& take) {
  constexpr Index most_blocks = Index{1} << 30;
  if (problem.scan.rows > most_blocks / problem.scan.channels) return;
  // Four channels leave registers for too few threads, and two blocks of half the size, of which one multiplies while
  // the other does the rest, were no quicker than one.
  for (const int vector : {2, 1}) {
    if (fitting_vector(problem.scan, vector) != vector) continue;
    for (int lanes = 1; lanes <= 32; ++lanes) {
      if (lanes > 1 && (lanes - 1) * vector >= problem.scan.channels) break;
      // Beyond those that have a step only as many as make bringing the weights quick.
      const auto useful =
          static_cast<int>(std::min<Index>(kMaxFusedGroups, std::max<Index>(groups_of(problem), 256 / lanes)));
      for (int groups = 1; groups <= useful; ++groups) {
        const std::optional<GpuScanPlan> plan = fused_candidate(problem, gpu, vector, lanes, groups);
        if (!plan) break;
        take(*plan, fused_time(*plan, problem, gpu));
      }
    }
  }
}

/// The best of all shapes of a block, if any fits.
std::optional<GpuScanPlan> plan_fused(const GpuLayerProblem& problem, const GpuModel& gpu) {
  std::optional<GpuScanPlan> best;
  double best_time = 0;
  for_each_fused(problem, gpu, [&](const GpuScanPlan& plan, double time) {
    if (!best || time < best_time) best = plan, best_time = time;
  });
  return best;
}

GpuScanPlan asked_for_fused(const GpuLayerProblem& problem, const GpuModel& gpu) {
  if (problem.scan.backward) return plan_gpu_scan(problem.scan, gpu);  // says why not
  std::optional<GpuScanPlan> plan = plan_fused(problem, gpu);
  if (!plan) {
    fail(
        ErrorCode::unsupported,
        "the fused regime keeps the weights of a channel in shared memory: {} gates of {} inputs and a chunk of x need "
        "more than the {} KB of a block of {}; ask for scan or direct",
        problem.scan.gates, problem.input, gpu.block_bytes / 1024, gpu.name);
  }
  plan->why = "asked for";
  return *plan;
}

}  // namespace

std::vector<GpuScanPlan> fused_plans(const GpuLayerProblem& problem, const GpuModel& gpu) {
  std::map<std::pair<int, int>, std::pair<double, GpuScanPlan>> best;  // by vector and tiles of channels
  for_each_fused(problem, gpu, [&](GpuScanPlan plan, double time) {
    plan.why = fmt::format("estimated at {:.0f} us", time);
    const auto tiles = static_cast<int>(plan.channel_tiles(problem.scan.channels));
    const auto [entry, added] = best.try_emplace({plan.vector, tiles}, time, plan);
    if (!added && time < entry->second.first) entry->second = {time, plan};
  });
  std::vector<std::pair<double, GpuScanPlan>> sorted;
  for (const auto& [key, plan] : best) sorted.push_back(plan);
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<GpuScanPlan> plans;
  for (const auto& [time, plan] : sorted) plans.push_back(plan);
  return plans;
}

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

GpuScanPlan plan_gpu_layer(const GpuLayerProblem& problem, const GpuModel& gpu) {
  require(problem.input >= 1 && problem.input <= GpuScanProblem::max_size, "input must be 1 to {}, not {}",
          GpuScanProblem::max_size, problem.input);
  if (problem.scan.regime == Regime::fused) return asked_for_fused(problem, gpu);
  GpuScanPlan separate = plan_gpu_scan(problem.scan, gpu);
  if (problem.scan.regime != Regime::automatic || problem.scan.backward) return separate;
  const double time = separate_time(problem, separate, gpu);
  std::optional<GpuScanPlan> fused = plan_fused(problem, gpu);
  const double fused_in = fused ? fused_time(*fused, problem, gpu) : 0;
  if (!fused) {
    separate.why += "; one launch for all cannot hold the weights";
  } else if (fused_in < time) {
    fused->why = fmt::format("estimated at {:.0f} us, and the product by itself with {} at {:.0f}", fused_in,
                             to_string(separate.regime), time);
    return *fused;
  } else {
    separate.why +=
        fmt::format("; with the product before it estimated at {:.0f} us, in one launch at {:.0f}", time, fused_in);
  }
  return separate;
}

}  // namespace penstock::plan
