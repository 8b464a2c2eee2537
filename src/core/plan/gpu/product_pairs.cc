// Products of floats as pairs of float16 by warpgroups, on Hopper only.

#include "plan/gpu/product_rules.h"

namespace penstock::plan {
namespace {

constexpr Index kStep = 64;     ///< Values of K that have one scale
constexpr int kMostTiles = 24;  ///< Tiles of a warpgroup over N whose sums, twice, fit the registers

/// Returns the bytes of one part, high or low, of a step, and of the scales and sums that come with it.
Index part_bytes(const GpuProductPlan& plan) {
  return 2 * kStep * (plan.tile_m() + plan.tile_n()) + 4 * (2 * plan.tile_m() + plan.tile_n()) + 2 * 8;
}

double pairs_cycles(const GpuProductPlan& plan, const GpuProductProblem& problem, const GpuModel& gpu) {
  const GpuCosts::Pairs& costs = gpu.costs.pairs;
  const auto rows = static_cast<double>(plan.tile_m()), columns = static_cast<double>(plan.tile_n());
  const double group = rows / 2 * columns * kStep / costs.products;
  const double brought = 4 * kStep * (rows + columns) / costs.cached_bytes;
  const double step = std::max({2 * group, group + costs.alone, brought});
  const auto steps = static_cast<double>(std::min(plan.split_k, rounded_up(problem.k, kStep)) / kStep);
  const Index tiles = plan.grid_m(problem.m) * plan.grid_n(problem.n) * plan.splits;
  const auto rounds = static_cast<double>((tiles + gpu.multiprocessors - 1) / gpu.multiprocessors);
  const auto m = static_cast<double>(problem.m), n = static_cast<double>(problem.n), k = static_cast<double>(problem.k);
  const double made = 8 * (m + n) * k / costs.bytes, stored = 4 * m * n / costs.bytes;
  return costs.launches + made + std::max(rounds * (steps * step + costs.tile), stored) +
         added_cycles(plan, problem, gpu.costs.product);
}

}  // namespace

ProductRule pairs_product_rule(const GpuProductProblem& problem, const GpuModel& gpu) {
  ProductRule rule{.name = "pairs"};
  if (rule.refused = no_warpgroups(gpu); !rule.refused.empty()) return rule;
  if (problem.exact) {
    rule.refused = "with many unfit rows of A, pairs leave all rows to another kernel";
    return rule;
  }
  csp::Model& m = rule.model;
  const auto tiles_n = rule.var("tiles_n", csp::range(1, kMostTiles));
  rule.var("splits", {kFillsGpu, 1, 2, 3, 4, 8});
  const auto shape_of = [=](csp::Integer tiles, csp::Integer wanted) {
    GpuProductPlan plan;
    plan.warpgroups = plan.pairs = true;
    plan.teams_m = 2, plan.tiles_m = 4, plan.tiles_n = static_cast<int>(tiles);
    const Index of_plan = plan.grid_m(problem.m) * plan.grid_n(problem.n);
    set_splits(plan, problem, wanted == kFillsGpu ? gpu.multiprocessors / of_plan : wanted, kStep);
    plan.most_m = plan.grid_m(problem.m);
    constexpr Index most = 8;  // more do not help
    plan.depth = static_cast<int>(std::min(most, gpu.block_bytes / part_bytes(plan)));
    plan.shared = plan.depth * part_bytes(plan);
    return plan;
  };
  const auto parts =
      m.call("parts", {tiles_n}, [=](std::span<const csp::Integer> v) { return csp::Integer{shape_of(v[0], 1).depth}; },
             {0, csp::largest});
  m.require("shared memory holds the parts of two steps", parts >= 4);
  const auto tiles = csp::ceil_div(problem.m, 128) * csp::ceil_div(problem.n, tiles_n * GpuProductPlan::columns);
  m.require("31 bits hold the number of a tile, of a row and of a column", tiles <= kMaxProductBlocks / 256);
  const auto plan_of = [=](const csp::Solution& solution) {
    const std::vector<csp::Integer>& v = solution.values();
    const GpuProductPlan plan = shape_of(v[0], v[1]);
    return estimated(plan, pairs_cycles(plan, problem, gpu), gpu.costs.common);
  };
  m.minimise([=](const csp::Solution& solution) { return plan_of(solution).cycles; });
  rule.plan_of = plan_of;
  return rule;
}

}  // namespace penstock::plan
