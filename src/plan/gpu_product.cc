#include "plan/gpu_product.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "base/check.h"

namespace penstock::plan {
namespace {

constexpr Index kMaxBlocks = std::numeric_limits<std::int32_t>::max();
constexpr int kMaxWarps = 8;
constexpr int kWarpThreads = 32, kMaxRegisters = 255;
/// Of a multiprocessor and a cycle: products of floats, each made of three; instructions; bytes from the cache that all
/// share.
constexpr double kProducts = 340 / 3.0, kInstructions = 4, kCachedBytes = 24;
/// Of a warp for 16 products of each of its sums, as in SASS: around the factors of its rows, and for each tile over N.
constexpr double kOfRows = 80, kOfColumns = 38;
/// Cycles: of a block before its first and after its last product, of a launch; bytes of slabs that the GPU adds in
/// one.
constexpr double kAround = 3000, kLaunchCycles = 5000, kAdded = 1500;
constexpr double kBusyWarps = 8;  // that keep tensor cores busy

Index rounded_up(Index n, Index to) { return (n + to - 1) / to * to; }

/// Of a warp over N. More sums than its threads have registers for; for other generations the compiler needs more.
int most_tiles(const GpuProductProblem& problem, const GpuModel& gpu) {
  if (gpu.compute_major != 9) return 8;
  return problem.b_transposed ? 11 : 13;  // whose factors come four at once, and early
}

/// Of a thread: its sums, factors and addresses. Measured by the compiler's report.
int registers_of(const GpuProductPlan& plan, const GpuModel& gpu) {
  return std::min(kMaxRegisters, 8 * plan.tiles_n + (gpu.compute_major == 9 ? 112 : 136)) / 8 * 8;
}

/// Bytes of one matrix' part of a step: whole rows of a step, or steps of rows padded to all banks.
Index part_bytes(int extent, bool along_k) {
  return 4 * static_cast<Index>(GpuProductPlan::step) * (along_k ? extent : rounded_up(extent, 32));
}

Index step_bytes(const GpuProductPlan& plan, const GpuProductProblem& problem) {
  return part_bytes(plan.tile_m(), !problem.a_transposed) + part_bytes(plan.tile_n(), problem.b_transposed);
}

/// As many steps ahead as leave the room of as many blocks as registers allow.
bool set_room(GpuProductPlan& plan, const GpuProductProblem& problem, const GpuModel& gpu) {
  // Each quarter of a multiprocessor has its own registers, for whole warps.
  const int warps = gpu.registers / 4 / kWarpThreads / registers_of(plan, gpu) * 4;
  const int by_registers = warps / (plan.teams_m * plan.teams_n);
  const Index bytes = step_bytes(plan, problem);
  for (plan.blocks = std::min(by_registers, gpu.threads / plan.threads()); plan.blocks >= 1; --plan.blocks) {
    for (plan.depth = 3; plan.depth >= 2; --plan.depth) {
      plan.shared = plan.depth * bytes;
      if (plan.shared <= gpu.block_bytes && plan.blocks * (plan.shared + kReservedBytes) <= gpu.shared_bytes)
        return true;
    }
  }
  return false;
}

/// Of a block that has a multiprocessor's units for itself.
double block_cycles(const GpuProductPlan& plan, Index inner) {
  const auto k = static_cast<double>(rounded_up(inner, 16));
  const double products = plan.tile_m() * plan.tile_n() * k / kProducts;
  const double issued = plan.threads() / kWarpThreads * k / 16 * (kOfRows + kOfColumns * plan.tiles_n) / kInstructions;
  const double bytes = 4 * k * (plan.tile_m() + plan.tile_n());
  return std::max({products, issued, bytes / kCachedBytes});
}

double cycles_of(const GpuProductPlan& plan, const GpuProductProblem& problem, const GpuModel& gpu) {
  const Index blocks = plan.grid_m(problem.m) * plan.grid_n(problem.n) * plan.slabs;
  const Index most = (blocks + gpu.multiprocessors - 1) / gpu.multiprocessors;  // of one multiprocessor
  const auto at_once = static_cast<double>(std::min<Index>(most, plan.blocks));
  const double busy = std::min(1.0, at_once * plan.teams_m * plan.teams_n / kBusyWarps);
  const double slab_bytes = 4.0 * static_cast<double>(plan.slabs * problem.m) * static_cast<double>(problem.n);
  const double added = plan.slabs == 1 ? 0 : kLaunchCycles + slab_bytes / kAdded;
  return static_cast<double>(most) * (block_cycles(plan, std::min(plan.slab, problem.k)) / busy + kAround / at_once) +
         added;
}

/// Slabs worth a look: one, and as many as fill the GPU once or a few times.
void set_slabs(GpuProductPlan& plan, const GpuProductProblem& problem, Index wanted) {
  constexpr Index shortest = 4 * GpuProductPlan::step;
  const Index most = problem.one_slab ? 1 : std::max<Index>(1, problem.k / shortest);
  plan.slabs = std::clamp<Index>(wanted, 1, most);
  plan.slab = rounded_up((problem.k + plan.slabs - 1) / plan.slabs, GpuProductPlan::step);
  plan.slabs = (problem.k + plan.slab - 1) / plan.slab;
}

/// Of warpgroups, as measured: products of a cycle, less than two thirds of what Hopper's tensor cores are said to do;
/// cycles of a block around its work, and around rows; what a warpgroup does alone between its products, and more where
/// A lies transposed; the split of a step's column; memory's bytes in a cycle of all.
constexpr double kGroupProducts = 0.65 * 1024 / 3, kGroupAround = 4000, kAroundRows = 700, kAlone = 600,
                 kTransposed = 350, kSplitColumn = 7, kMemoryBytes = 2200;

double warpgroup_cycles(const GpuProductPlan& plan, const GpuProductProblem& problem, const GpuModel& gpu) {
  const double columns = plan.tiles_n * GpuProductPlan::columns;
  const double group = plan.tiles_m * GpuProductPlan::rows * columns * GpuProductPlan::step / kGroupProducts;
  const double split = kSplitColumn * plan.tile_n();
  const double steps = static_cast<double>(rounded_up(std::min(plan.slab, problem.k), 16)) / GpuProductPlan::step;
  const double step =
      std::max({2 * group, group + kAlone, plan.resident() ? 0 : split}) + (problem.a_transposed ? kTransposed : 0);
  const Index over_m = plan.blocks_m(problem.m), blocks = over_m * plan.grid_n(problem.n) * plan.slabs;
  const auto rounds = static_cast<double>((blocks + gpu.multiprocessors - 1) / gpu.multiprocessors);
  const auto passes = static_cast<double>((plan.grid_m(problem.m) + over_m - 1) / over_m);
  const double first = kGroupAround + (plan.resident() ? steps * split : 0);
  const auto m = static_cast<double>(problem.m), n = static_cast<double>(problem.n), k = static_cast<double>(problem.k);
  const double bytes = 4 * (m * k * static_cast<double>(plan.grid_n(problem.n)) + m * n + n * k);
  const double added = plan.slabs == 1 ? 0 : kLaunchCycles + 4 * static_cast<double>(plan.slabs) * m * n / kAdded;
  return rounds * first + std::max(rounds * passes * (steps * step + kAroundRows), bytes / kMemoryBytes) + added;
}

/// Of B as many stages as there is room for, or as the slab has, beside two or more of A; false if too few.
bool set_stages(GpuProductPlan& plan, const GpuProductProblem& problem, const GpuModel& gpu) {
  constexpr Index step = 4 * GpuProductPlan::step;  // bytes of a row or a column
  constexpr Index aligned = 1024;                   // where the tensor cores' matrices begin
  constexpr Index most_of_b = 6, most_of_a = 4;     // more do not help
  const Index of_b = 2 * step * plan.tile_n() + 2 * 8,
              of_a = 2 * plan.tiles_m * GpuProductPlan::rows * step * (problem.a_transposed ? 3 : 2) / 2;
  const Index room = gpu.block_bytes - aligned - 4 * plan.tile_n();
  const Index stages = (plan.slab + GpuProductPlan::step - 1) / GpuProductPlan::step;
  const bool all = stages * of_b + 2 * of_a <= room;
  plan.depth = static_cast<int>(all ? stages : std::min(most_of_b, (room - 3 * of_a) / of_b));
  plan.ahead = static_cast<int>(std::min(most_of_a, (room - plan.depth * of_b) / of_a));
  plan.shared = plan.depth * of_b + plan.ahead * of_a + 4 * plan.tile_n() + aligned;
  return all || plan.depth >= 3;
}

/// Blocks that hold all of their slab of B go on from rows to rows, as many as the GPU has room for at once.
void set_blocks_over_m(GpuProductPlan& plan, const GpuProductProblem& problem, const GpuModel& gpu) {
  plan.most_m = plan.grid_m(problem.m);
  if (!plan.resident()) return;
  const Index at_once = std::max<Index>(1, gpu.multiprocessors / (plan.grid_n(problem.n) * plan.slabs));
  const Index passes = (plan.most_m + at_once - 1) / at_once;
  plan.most_m = (plan.most_m + passes - 1) / passes;
}

/// for_each_product() of warpgroups.
template <class Take>
void for_each_warpgroup_product(const GpuProductProblem& problem, const GpuModel& gpu, const Take& take) {
  const int most_columns = problem.a_transposed ? 112 : 128;  // whose sums, twice, fit the registers
  if (!has_warpgroups(gpu)) return;
  for (const int teams_n : {1, 2}) {
    for (int tiles_n = 1; tiles_n <= most_columns / GpuProductPlan::columns; ++tiles_n) {
      GpuProductPlan plan;
      plan.warpgroups = true, plan.teams_m = 2 / teams_n, plan.teams_n = teams_n;
      plan.tiles_m = 4, plan.tiles_n = tiles_n;
      const Index tiles = plan.grid_m(problem.m) * plan.grid_n(problem.n);
      if (tiles > kMaxBlocks / 16) continue;
      for (const Index wanted : {Index{1}, Index{2}, Index{3}, Index{4}, Index{8}, gpu.multiprocessors / tiles}) {
        set_slabs(plan, problem, wanted);
        if (!set_stages(plan, problem, gpu)) continue;
        if (!plan.resident() && plan.tile_n() > most_columns) continue;  // more than the third has registers for
        set_blocks_over_m(plan, problem, gpu);
        take(plan, warpgroup_cycles(plan, problem, gpu));
      }
    }
  }
}

std::string estimated(double cycles) { return fmt::format("estimated at {:.0f} thousand cycles", cycles / 1000); }

/// Calls take(plan, cycles) for every shape of a block that fits.
template <class Take>
void for_each_product(const GpuProductProblem& problem, const GpuModel& gpu, const Take& take) {
  for (int teams_n = 1; teams_n <= 4; teams_n *= 2) {
    for (int teams_m = 1; teams_m * teams_n <= kMaxWarps; ++teams_m) {
      for (int tiles_n = 1; tiles_n <= most_tiles(problem, gpu); ++tiles_n) {
        GpuProductPlan plan;
        plan.teams_m = teams_m, plan.teams_n = teams_n, plan.tiles_n = tiles_n;
        if (!set_room(plan, problem, gpu)) continue;
        const Index tiles = plan.grid_m(problem.m) * plan.grid_n(problem.n);
        if (tiles > kMaxBlocks / 4) continue;
        for (const Index rounds : {0, 1, 2}) {
          set_slabs(plan, problem, rounds * plan.blocks * gpu.multiprocessors / tiles);
          take(plan, cycles_of(plan, problem, gpu));
        }
      }
    }
  }
}

template <class Take>
void for_each_plan(const GpuProductProblem& problem, const GpuModel& gpu, const Take& take) {
  for_each_product(problem, gpu, take);
  for_each_warpgroup_product(problem, gpu, take);
}

}  // namespace

std::string GpuProductPlan::explain() const {
  const std::string teams = fmt::format("{} x {} {} of {} x {} sums", teams_m, teams_n,
                                        warpgroups ? "warpgroups" : "warps", tiles_m * rows, tiles_n * columns);
  const std::string room = fmt::format("{} steps of {}{} in {} KB of shared memory", depth, step,
                                       resident() ? ", all there are," : " under way", shared / 1024);
  return fmt::format(
      "floats on tensor cores: tiles of {} x {} by {} threads ({}), {}, {} slab{} of {}, {} block{} a "
      "multiprocessor: {}",
      tile_m(), tile_n(), threads(), teams, room, slabs, slabs == 1 ? "" : "s", slab, blocks, blocks == 1 ? "" : "s",
      why);
}

GpuProductPlan plan_gpu_product(const GpuProductProblem& problem, const GpuModel& gpu) {
  require(problem.m >= 1 && problem.n >= 1 && problem.k >= 1,
          "a product must have sizes of at least 1, not {} x {} x {}", problem.m, problem.n, problem.k);
  std::optional<GpuProductPlan> best;
  const auto take = [&](const GpuProductPlan& plan, double cycles) {
    if (!best || cycles < best->cycles) best = plan, best->cycles = cycles;
  };
  for_each_plan(problem, gpu, take);
  require(best.has_value(), "a product of {} x {} x {} needs more blocks than one launch can number", problem.m,
          problem.n, problem.k);
  best->why = estimated(best->cycles);
  return *best;
}

std::vector<GpuProductPlan> product_plans(const GpuProductProblem& problem, const GpuModel& gpu) {
  std::map<std::array<int, 4>, std::pair<double, GpuProductPlan>> best;
  const auto take = [&](GpuProductPlan plan, double cycles) {
    plan.cycles = cycles, plan.why = estimated(cycles);
    const auto [entry, added] =
        best.try_emplace({plan.warpgroups ? 1 : 0, plan.teams_m, plan.teams_n, plan.tiles_n}, cycles, plan);
    if (!added && cycles < entry->second.first) entry->second = {cycles, plan};
  };
  for_each_plan(problem, gpu, take);
  std::vector<std::pair<double, GpuProductPlan>> sorted;
  for (const auto& [shape, plan] : best) sorted.push_back(plan);
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<GpuProductPlan> plans;
  for (auto& [cycles, plan] : sorted) plans.push_back(std::move(plan));
  return plans;
}

}  // namespace penstock::plan
