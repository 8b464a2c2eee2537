// Products of floats by warps, for all chips.

#include "plan/gpu/product_rules.h"

namespace penstock::plan {
namespace {

constexpr int kMaxProductWarps = 8;
constexpr int kWarpThreads = 32, kMaxRegisters = 255;
/// Instructions (SASS) of a warp for 16 products of each of its sums: for the factors of its rows, and per tile over N.
constexpr double kOfRows = 80, kOfColumns = 38;

/// Returns the largest number of tiles of a warp over N for which its threads have registers. For other generations the
/// compiler needs more registers.
int most_tiles(const GpuProductProblem& problem, const GpuModel& gpu) {
  if (gpu.compute_major != 9) return 8;
  return problem.b_transposed ? 11 : 13;  // transposed factors are loaded four at once, and early
}

/// Returns the registers of a thread for sums, factors and addresses, according to the report of the compiler.
int registers_of(const GpuProductPlan& plan, const GpuModel& gpu) {
  return std::min(kMaxRegisters, 8 * plan.tiles_n + (gpu.compute_major == 9 ? 112 : 136)) / 8 * 8;
}

/// Returns the bytes of one matrix per step: whole rows of a step, or steps of rows padded to all banks.
Index part_bytes(int extent, bool along_k) {
  return 4 * static_cast<Index>(GpuProductPlan::step) * (along_k ? extent : rounded_up(extent, 32));
}

Index step_bytes(const GpuProductPlan& plan, const GpuProductProblem& problem) {
  return part_bytes(plan.tile_m(), !problem.a_transposed) + part_bytes(plan.tile_n(), problem.b_transposed);
}

/// Sets the number of blocks that registers and shared memory allow, and the depth that fits. Returns false if no block
/// fits.
bool set_room(GpuProductPlan& plan, const GpuProductProblem& problem, const GpuModel& gpu) {
  // Each quarter of a multiprocessor has its own registers, allocated to whole warps.
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

/// Returns the cycles of a block that has a multiprocessor to itself.
double block_cycles(const GpuProductPlan& plan, Index inner, const GpuCosts::Product& costs) {
  const auto k = static_cast<double>(rounded_up(inner, 16));
  const double products = plan.tile_m() * plan.tile_n() * k / costs.products;
  const double issued =
      plan.threads() / kWarpThreads * k / 16 * (kOfRows + kOfColumns * plan.tiles_n) / costs.instructions;
  const double bytes = 4 * k * (plan.tile_m() + plan.tile_n());
  return std::max({products, issued, bytes / costs.cached_bytes});
}

double warp_cycles(const GpuProductPlan& plan, const GpuProductProblem& problem, const GpuModel& gpu) {
  const GpuCosts::Product& costs = gpu.costs.product;
  const Index blocks = plan.grid_m(problem.m) * plan.grid_n(problem.n) * plan.splits;
  const Index most = (blocks + gpu.multiprocessors - 1) / gpu.multiprocessors;  // blocks of one multiprocessor
  const auto at_once = static_cast<double>(std::min<Index>(most, plan.blocks));
  const double busy = std::min(1.0, at_once * plan.teams_m * plan.teams_n / costs.busy_warps);
  return static_cast<double>(most) *
             (block_cycles(plan, std::min(plan.split_k, problem.k), costs) / busy + costs.block / at_once) +
         added_cycles(plan, problem, costs);
}

}  // namespace

ProductRule warp_product_rule(const GpuProductProblem& problem, const GpuModel& gpu) {
  ProductRule rule{.name = "warps"};
  csp::Model& m = rule.model;
  const auto teams_n = rule.var("warps_n", {1, 2, 4});
  const auto teams_m = rule.var("warps_m", csp::range(1, kMaxProductWarps));
  const auto tiles_n = rule.var("tiles_n", csp::range(1, most_tiles(problem, gpu)));
  rule.var("rounds", {0, 1, 2});  // rounds in which the splits fill the GPU; 0: one split
  const auto shape_of = [=](csp::Integer warps_n, csp::Integer warps_m, csp::Integer tiles) {
    GpuProductPlan plan;
    plan.teams_n = static_cast<int>(warps_n), plan.teams_m = static_cast<int>(warps_m);
    plan.tiles_n = static_cast<int>(tiles);
    if (!set_room(plan, problem, gpu)) plan.blocks = 0;
    return plan;
  };
  const auto blocks =
      m.call("blocks", {teams_n, teams_m, tiles_n},
             [=](std::span<const csp::Integer> v) { return csp::Integer{shape_of(v[0], v[1], v[2]).blocks}; },
             {0, gpu.threads});
  m.require("a block has at most 8 warps", teams_n * teams_m <= kMaxProductWarps);
  m.require("registers and shared memory hold a block", blocks >= 1);
  const auto tiles = csp::ceil_div(problem.m, teams_m * 2 * GpuProductPlan::rows) *
                     csp::ceil_div(problem.n, teams_n * tiles_n * GpuProductPlan::columns);
  m.require("one launch numbers the blocks", tiles <= kMaxProductBlocks / 4);
  const auto plan_of = [=](const csp::Solution& solution) {
    const std::vector<csp::Integer>& v = solution.values();
    GpuProductPlan plan = shape_of(v[0], v[1], v[2]);
    const Index of_plan = plan.grid_m(problem.m) * plan.grid_n(problem.n);
    set_splits(plan, problem, v[3] * plan.blocks * gpu.multiprocessors / of_plan);
    return estimated(plan, warp_cycles(plan, problem, gpu), gpu.costs.common);
  };
  m.minimise([=](const csp::Solution& solution) { return plan_of(solution).cycles; });
  rule.plan_of = plan_of;
  return rule;
}

}  // namespace penstock::plan
