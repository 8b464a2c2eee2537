#include "plan/gpu.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <utility>

#include "base/check.h"

namespace penstock::plan {
namespace {

constexpr Index kWindowWords = 512;  // that a block reads when it looks back, one or two of each thread
constexpr Index kPassedBytes = 16;   // of one channel of one chunk: a state and a gain, with their tags
constexpr Index kHeaderBytes = 256;
constexpr Index kMaxTiles = std::numeric_limits<std::int32_t>::max();
constexpr int kNewerArchitecture = 100;

/// Bytes of one access and of all values of a thread in one tile, as measured (docs/results/gpu.md). Wide enough a
/// tile that what blocks pass on to each other is little beside it.
struct Shape {
  int access_bytes, steps, threads;
  bool keep = false;
};

/// Rules that compute.
Shape best_for_cells(const GpuScanProblem& problem, bool ragged) {
  const bool wide = problem.storage == Storage::f32, two = problem.gates == 2;
  if (problem.backward) {
    if (ragged) return {4, two ? 16 : 8, 256};
    if (wide) return {8, two ? 16 : 12, 256};
    return {4, two ? 32 : 24, 256};
  }
  if (ragged) return {4, 16, 256, true};
  return {4, 32, wide ? 512 : 256, true};
}

Shape best_shape(const GpuScanProblem& problem) {
  // Where rows end and where they restart takes registers that values would need.
  const bool ragged = problem.lengths || problem.reset;
  if (problem.computed) return best_for_cells(problem, ragged);
  if (ragged) return {4, 16, 512};
  if (problem.backward) return problem.storage == Storage::f32 ? Shape{4, 16, 512} : Shape{4, 32, 256};
  return {4, 32, 512};
}

constexpr int inputs_of(const GpuScanProblem& problem) {
  return problem.backward ? problem.read_back + 2 : problem.gates;
}

constexpr std::array<std::pair<Regime, std::string_view>, 4> kRegimes = {
    {{Regime::automatic, "automatic"}, {Regime::direct, "direct"}, {Regime::fused, "fused"}, {Regime::scan, "scan"}}};

/// The values of a tile; then gain and offset of every group and the carry, twice; the window's three numbers; the
/// chunk's effect; the epoch and the tickets.
Index shared_bytes(const GpuScanPlan& plan, const GpuScanProblem& problem) {
  const Index values = inputs_of(problem) * plan.steps * plan.threads() * plan.vector * size_of(problem.storage);
  return values + 4 * (plan.tile_channels() * (2 * (2 * plan.groups + 1) + 3 * plan.window + 2) + 3);
}

/// Up to this many steps a thread is done with a walk sooner than blocks are with looking back.
constexpr Index kDirectSteps = 64;
constexpr int kDirectThreads = 128;
/// What a thread asks for at once, and how many blocks of such threads a multiprocessor holds.
constexpr int kDirectAhead = 8, kDirectBlocks = 4;

/// Why a walk by single threads is chosen, or an empty string.
std::string why_direct(const GpuScanProblem& problem) {
  if (problem.regime == Regime::direct) return "asked for";
  if (problem.regime == Regime::scan || problem.steps > kDirectSteps) return "";
  return fmt::format("T is at most {}, too short to cut", kDirectSteps);
}

/// Lanes that no channel needs are given to the groups.
void share_threads(GpuScanPlan& plan, const GpuScanProblem& problem, int threads) {
  const auto needed = static_cast<std::uint64_t>((problem.channels + plan.vector - 1) / plan.vector);
  plan.lanes = static_cast<int>(std::min<std::uint64_t>(32, std::bit_ceil(needed)));
  plan.groups = threads / plan.lanes;
}

GpuScanPlan plan_direct(const GpuScanProblem& problem, std::string why) {
  GpuScanPlan plan;
  plan.regime = Regime::direct;
  plan.vector = fitting_vector(problem, 4 / size_of(problem.storage));
  share_threads(plan, problem, kDirectThreads);
  plan.steps = kDirectAhead;
  plan.blocks = kDirectBlocks;
  plan.piece = size_of(problem.storage);  // there are no copies
  plan.window = 1;
  const Index rows_and_tiles = problem.rows * plan.channel_tiles(problem.channels);
  require(problem.rows <= kMaxTiles / plan.channel_tiles(problem.channels),
          "rows x channels must fit {} tiles of {} channels; {} x {} needs more", kMaxTiles, plan.tile_channels(),
          problem.rows, problem.channels);
  plan.tiles = rows_and_tiles;
  plan.grid = (rows_and_tiles + plan.groups - 1) / plan.groups;
  plan.why = std::move(why);
  return plan;
}

}  // namespace

int fitting_vector(const GpuScanProblem& problem, int wished) {
  int vector = wished;
  while (vector > 1 &&
         (problem.alignment % (vector * size_of(problem.storage)) != 0 || problem.channels % vector != 0)) {
    vector /= 2;
  }
  return vector;
}

std::string_view to_string(Storage storage) {
  return storage == Storage::f32 ? "f32" : storage == Storage::bf16 ? "bf16" : "f16";
}

std::string_view to_string(Regime regime) { return kRegimes[static_cast<std::size_t>(regime)].second; }

Regime parse_regime(std::string_view text) {
  for (const auto& [regime, name] : kRegimes) {
    if (name == text) return regime;
  }
  fail(ErrorCode::invalid_argument, "regime must be one of automatic, direct, fused, scan, not '{}'", text);
}

Index GpuScanPlan::workspace_bytes() const {
  return regime == Regime::scan ? kHeaderBytes + tiles * tile_channels() * kPassedBytes : 0;
}

std::string GpuScanPlan::explain() const {
  if (regime == Regime::direct) {
    return fmt::format(
        "direct: {} tiles of a row and {} channels in {} blocks of {} threads ({} x {}), {} steps asked "
        "for at once: {}",
        tiles, tile_channels(), grid, threads(), groups, lanes, steps, why);
  }
  if (regime == Regime::fused) {
    return fmt::format(
        "fused: product, gates and recurrence in one launch of {} blocks of {} threads ({} x {}), chunks of {} steps x "
        "{} channels, {} KB of shared memory, {} block{} a multiprocessor: {}",
        grid, threads(), groups, lanes, chunk(), tile_channels(), shared / 1024, blocks, blocks == 1 ? "" : "s", why);
  }
  return fmt::format(
      "scan with look-back over {} tiles, {} steps x {} channels, in {} blocks of {} threads ({} x {}), {} value{} an "
      "access, {} KB of shared memory, {} block{} a multiprocessor: {}",
      tiles, chunk(), tile_channels(), grid, threads(), groups, lanes, vector, vector == 1 ? "" : "s", shared / 1024,
      blocks, blocks == 1 ? "" : "s", why);
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
  plan.shared = shared_bytes(plan, problem);
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
  if (problem.regime == Regime::fused) {
    fail(ErrorCode::unsupported, "the fused regime is for forward passes of layers: {} has no product to fuse",
         problem.backward ? "a way back" : "a recurrence by itself");
  }
  if (std::string why = why_direct(problem); !why.empty()) return plan_direct(problem, std::move(why));
  const Shape shape = best_shape(problem);
  GpuScanPlan plan;
  plan.vector = fitting_vector(problem, shape.access_bytes / size_of(problem.storage));
  plan.steps = shape.steps;
  plan.keep = shape.keep;
  plan.blocks = 1;
  share_threads(plan, problem, shape.threads);
  // As measured on one chip: others have less shared memory, or a compiler that needs more registers. Multiples of 4,
  // as copies are up to four times as wide as what a thread reads of a step.
  const auto reduced = [](int steps, int share) { return std::max(4, steps * share / 16 * 4); };
  if (gpu.architecture() >= kNewerArchitecture) {
    const bool crowded = shape.keep && shape.threads == 512;  // all registers a thread can have at 24 steps
    plan.steps = reduced(plan.steps, plan.lanes < 32 ? 1 : crowded ? 2 : 3);
  }
  while (plan.steps > 4 && shared_bytes(plan, problem) > gpu.block_bytes) plan.steps = reduced(plan.steps, 2);
  plan.why = plan.vector * size_of(problem.storage) == shape.access_bytes
                 ? "as measured fastest for this storage"
                 : fmt::format(
                       "narrower accesses than fastest, since addresses and strides are multiples of {} bytes "
                       "and C is {}",
                       problem.alignment, problem.channels);
  if (problem.regime == Regime::scan) plan.why = "asked for, " + plan.why;
  return complete(plan, problem, gpu);
}

}  // namespace penstock::plan
