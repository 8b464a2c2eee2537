#include "plan/gpu/product.h"

#include <array>
#include <map>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/plural.h"
#include "plan/gpu/product_rules.h"
#include "plan/tuning.h"

namespace penstock::plan {
namespace {

void check(const GpuProductProblem& problem) {
  require(problem.m >= 1 && problem.n >= 1 && problem.k >= 1,
          "a product must have sizes of at least 1, not {} x {} x {}", problem.m, problem.n, problem.k);
}

[[noreturn]] void refuse_size(const GpuProductProblem& problem) {
  fail(ErrorCode::invalid_argument, "a product of {} x {} x {} has more tiles than one launch can number", problem.m,
       problem.n, problem.k);
}

}  // namespace

std::vector<ProductRule> product_rules(const GpuProductProblem& problem, const GpuModel& gpu) {
  std::vector<ProductRule> rules;
  rules.push_back(warp_product_rule(problem, gpu));
  rules.push_back(warpgroup_product_rule(problem, gpu));
  rules.push_back(pairs_product_rule(problem, gpu));
  return rules;
}

std::string GpuProductPlan::explain() const {
  const std::string teams = fmt::format("{} x {} {} of {} x {} sums", teams_m, teams_n,
                                        warpgroups ? "warpgroups" : "warps", tiles_m * rows, tiles_n * columns);
  const std::string room =
      fmt::format("{} of {}{} in {} KB of shared memory", counted(depth, pairs ? "half step" : "step"),
                  pairs ? 2 * step : step, resident() ? ", all there are," : " under way", shared / 1024);
  return fmt::format("{} on tensor cores: tiles of {} x {} by {} threads ({}), {}, {} of {}, {} a multiprocessor: {}",
                     pairs ? "floats as pairs of float16" : "floats", tile_m(), tile_n(), threads(), teams, room,
                     counted(splits, "split"), split_k, counted(blocks, "block"), why);
}

GpuProductPlan plan_gpu_product(const GpuProductProblem& problem, const GpuModel& gpu) {
  check(problem);
  const auto ranked = [&] {
    std::optional<GpuProductPlan> best;
    for (const ProductRule& rule : product_rules(problem, gpu)) {
      const std::optional<GpuProductPlan> plan = best_plan(rule);
      if (plan && (!best || plan->cycles < best->cycles)) best = plan;
    }
    if (!best) refuse_size(problem);
    return *best;
  };
  const auto make = [&] {
    return plan_as_measured<GpuProductPlan>(
        problem, gpu, [&] { return product_rules(problem, gpu); }, ranked);
  };
  static PlanMemo<GpuProductProblem, GpuModel, GpuProductPlan> memo;
  return measuring() ? make() : memo.get(problem, gpu, make);
}

GpuProductPlan plan_product_without_pairs(const GpuProductProblem& problem, const GpuModel& gpu) {
  check(problem);
  const std::optional<GpuProductPlan> plan = best_plan(warpgroup_product_rule(problem, gpu));
  if (!plan) refuse_size(problem);
  return *plan;
}

std::vector<GpuProductPlan> product_plans(const GpuProductProblem& problem, const GpuModel& gpu) {
  check(problem);
  std::map<std::array<int, 4>, GpuProductPlan> best;  // by the shape of a block
  for (const ProductRule& rule : product_rules(problem, gpu)) {
    for (GpuProductPlan& plan : best_plans(rule, csp::largest)) {
      best.try_emplace({plan.warpgroups + plan.pairs, plan.teams_m, plan.teams_n, plan.tiles_n}, std::move(plan));
    }
  }
  std::vector<GpuProductPlan> plans;
  for (auto& [shape, plan] : best) plans.push_back(std::move(plan));
  std::ranges::stable_sort(plans, {}, &GpuProductPlan::cycles);
  return plans;
}

}  // namespace penstock::plan
