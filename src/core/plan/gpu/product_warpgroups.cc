// Products of floats by warpgroups, on Hopper only.

#include "plan/gpu/product_rules.h"

namespace penstock::plan {
namespace {

double warpgroup_cycles(const GpuProductPlan& plan, const GpuProductProblem& problem, const GpuModel& gpu) {
  const GpuCosts::Warpgroups& costs = gpu.costs.warpgroups;
  const double columns = plan.tiles_n * GpuProductPlan::columns;
  const double group = plan.tiles_m * GpuProductPlan::rows * columns * GpuProductPlan::step / costs.products;
  const double split = costs.split * plan.tile_n();
  const double steps = static_cast<double>(rounded_up(std::min(plan.split_k, problem.k), 16)) / GpuProductPlan::step;
  const double step = std::max({2 * group, group + costs.alone, plan.resident() ? 0 : split}) +
                      (problem.a_transposed ? costs.transposed : 0);
  const Index over_m = plan.blocks_m(problem.m), blocks = over_m * plan.grid_n(problem.n) * plan.splits;
  const auto rounds = static_cast<double>((blocks + gpu.multiprocessors - 1) / gpu.multiprocessors);
  const auto passes = static_cast<double>((plan.grid_m(problem.m) + over_m - 1) / over_m);
  const double first = costs.block + (plan.resident() ? steps * split : 0);
  const auto m = static_cast<double>(problem.m), n = static_cast<double>(problem.n), k = static_cast<double>(problem.k);
  const double bytes = 4 * (m * k * static_cast<double>(plan.grid_n(problem.n)) + m * n + n * k);
  return rounds * first + std::max(rounds * passes * (steps * step + costs.rows), bytes / costs.bytes) +
         added_cycles(plan, problem, gpu.costs.product);
}

/// Sets the stages: for B as many as the split has or there is room for, besides two or more for A. Returns false if
/// there are too few.
bool set_stages(GpuProductPlan& plan, const GpuProductProblem& problem, const GpuModel& gpu) {
  constexpr Index step = 4 * GpuProductPlan::step;  // bytes of a row or a column
  constexpr Index aligned = 1024;                   // alignment of the tensor cores' matrices
  constexpr Index most_of_b = 6, most_of_a = 4;     // more do not help
  const Index of_b = 2 * step * plan.tile_n() + 2 * 8,
              of_a = 2 * plan.tiles_m * GpuProductPlan::rows * step * (problem.a_transposed ? 3 : 2) / 2;
  const Index room = gpu.block_bytes - aligned - 4 * plan.tile_n();
  const Index stages = (plan.split_k + GpuProductPlan::step - 1) / GpuProductPlan::step;
  const bool all = stages * of_b + 2 * of_a <= room;
  plan.depth = static_cast<int>(all ? stages : std::min(most_of_b, (room - 3 * of_a) / of_b));
  plan.ahead = static_cast<int>(std::min(most_of_a, (room - plan.depth * of_b) / of_a));
  plan.shared = plan.depth * of_b + plan.ahead * of_a + 4 * plan.tile_n() + aligned;
  return all || plan.depth >= 3;
}

/// Sets most_m. Blocks that hold all of their split of B continue with further rows; there are as many blocks as the
/// GPU runs at once.
void set_blocks_over_m(GpuProductPlan& plan, const GpuProductProblem& problem, const GpuModel& gpu) {
  plan.most_m = plan.grid_m(problem.m);
  if (!plan.resident()) return;
  const Index at_once = std::max<Index>(1, gpu.multiprocessors / (plan.grid_n(problem.n) * plan.splits));
  const Index passes = (plan.most_m + at_once - 1) / at_once;
  plan.most_m = (plan.most_m + passes - 1) / passes;
}

}  // namespace

ProductRule warpgroup_product_rule(const GpuProductProblem& problem, const GpuModel& gpu) {
  ProductRule rule{.name = "warpgroups"};
  if (rule.refused = no_warpgroups(gpu); !rule.refused.empty()) return rule;
  const int most_columns = problem.a_transposed ? 112 : 128;  // twice their sums fit the registers
  csp::Model& m = rule.model;
  const auto teams_n = rule.var("warpgroups_n", {1, 2});
  const auto tiles_n = rule.var("tiles_n", csp::range(1, most_columns / GpuProductPlan::columns));
  const auto splits = rule.var("splits", {kFillsGpu, 1, 2, 3, 4, 8});
  const auto shape_of = [=](csp::Integer groups_n, csp::Integer tiles, csp::Integer wanted) {
    GpuProductPlan plan;
    plan.warpgroups = true;
    plan.teams_n = static_cast<int>(groups_n), plan.teams_m = 2 / plan.teams_n;
    plan.tiles_m = 4, plan.tiles_n = static_cast<int>(tiles);
    const Index of_plan = plan.grid_m(problem.m) * plan.grid_n(problem.n);
    set_splits(plan, problem, wanted == kFillsGpu ? gpu.multiprocessors / of_plan : wanted);
    if (!set_stages(plan, problem, gpu)) plan.depth = 0;
    return plan;
  };
  const auto depth =
      m.call("stages", {teams_n, tiles_n, splits},
             [=](std::span<const csp::Integer> v) { return csp::Integer{shape_of(v[0], v[1], v[2]).depth}; },
             {0, csp::largest});
  const auto resident = m.call(
      "holds_all_of_B", {teams_n, tiles_n, splits},
      [=](std::span<const csp::Integer> v) { return csp::Integer{shape_of(v[0], v[1], v[2]).resident() ? 1 : 0}; },
      {0, 1});
  m.require("shared memory holds stages of A and B", depth >= 1);
  m.require("registers hold what splits B",
            resident == 1 || teams_n * tiles_n * GpuProductPlan::columns <= most_columns);
  const auto tiles = csp::ceil_div(problem.m, (2 / teams_n) * 4 * GpuProductPlan::rows) *
                     csp::ceil_div(problem.n, teams_n * tiles_n * GpuProductPlan::columns);
  m.require("one launch numbers the blocks", tiles <= kMaxProductBlocks / 16);
  const auto plan_of = [=](const csp::Solution& solution) {
    const std::vector<csp::Integer>& v = solution.values();
    GpuProductPlan plan = shape_of(v[0], v[1], v[2]);
    set_blocks_over_m(plan, problem, gpu);
    return estimated(plan, warpgroup_cycles(plan, problem, gpu), gpu.costs.common);
  };
  m.minimise([=](const csp::Solution& solution) { return plan_of(solution).cycles; });
  rule.plan_of = plan_of;
  return rule;
}

}  // namespace penstock::plan
