// The planner's choice is the best of all plans that the rules allow. A search skips some of them; these tests look at
// every one. The choice also fits the machine, and asking again gives the same plan.

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "plan/choices.h"
#include "plan/cpu/rules.h"
#include "plan/gpu/dense_rules.h"
#include "plan/gpu/product_rules.h"
#include "plan/gpu/scan_layer_rules.h"
#include "plan/tuning.h"

namespace penstock::plan {
namespace {

constexpr double kNone = std::numeric_limits<double>::infinity();

GpuProductPlan plan_of(const GpuProductProblem& problem, const GpuModel& gpu) { return plan_gpu_product(problem, gpu); }
GpuScanPlan plan_of(const GpuScanProblem& problem, const GpuModel& gpu) { return plan_gpu_scan(problem, gpu); }
GpuScanPlan plan_of(const GpuLayerProblem& problem, const GpuModel& gpu) { return plan_gpu_layer(problem, gpu); }
GpuDensePlan plan_of(const GpuDenseProblem& problem, const GpuModel& gpu) { return plan_gpu_dense(problem, gpu); }
Plan plan_of(const Problem& problem, const CpuModel& cpu) { return make_plan(problem, cpu); }

/// Returns the plan; none if the planner refuses the algorithm that the problem asks for.
template <class AnyProblem, class Machine>
auto planned(const AnyProblem& problem, const Machine& machine) {
  std::optional<decltype(plan_of(problem, machine))> plan;
  try {
    plan = plan_of(problem, machine);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported) << error.what();
  }
  return plan;
}

/// The best solutions of a rule, after a look at all of them.
template <class AnyPlan>
struct Survey {
  double least_time = kNone;      ///< Estimated microseconds of the quickest plan
  double least_cost = kNone;      ///< Of the rule's own cost, which also settles ties
  std::vector<AnyPlan> cheapest;  ///< All plans of that cost
};

template <class AnyPlan>
Survey<AnyPlan> survey(const Rule<AnyPlan>& rule) {
  Survey<AnyPlan> all;
  if (!rule.refused.empty()) return all;
  rule.model.for_each([&](const csp::Solution& solution) {
    const AnyPlan plan = rule.plan_of(solution);
    all.least_time = std::min(all.least_time, plan.microseconds);
    if (solution.cost() < all.least_cost) all.least_cost = solution.cost(), all.cheapest.clear();
    if (solution.cost() == all.least_cost) all.cheapest.push_back(plan);
    return true;
  });
  return all;
}

TEST(BestPlans, OfProductsHaveTheFewestCyclesOfAll) {
  int problems = 0;
  test::visit_products([&](const GpuProductProblem& problem, const GpuModel& gpu) {
    double least = kNone;
    for (const ProductRule& rule : product_rules(problem, gpu)) least = std::min(least, survey(rule).least_time);
    EXPECT_DOUBLE_EQ(plan_of(problem, gpu).microseconds, least) << test::choice_of(problem, gpu).problem;
    ++problems;
  });
  EXPECT_GT(problems, 20);
}

/// A layer's recurrence after a separate product is planned by rules alone; algorithms of one launch by estimates.
TEST(BestPlans, OfLayersAreTheQuickestOfTheAlgorithms) {
  int problems = 0;
  test::visit_layers([&](const GpuLayerProblem& problem, const GpuModel& gpu) {
    GpuLayerProblem separate = problem;
    separate.scan.algorithm = plan_of(problem.scan, gpu).algorithm;
    const double least =
        std::min({plan_of(separate, gpu).microseconds, survey(fused_layer_rule(problem, gpu)).least_time,
                  survey(epilogue_layer_rule(problem, gpu)).least_time});
    EXPECT_DOUBLE_EQ(plan_of(problem, gpu).microseconds, least) << test::choice_of(problem, gpu).problem;
    ++problems;
  });
  EXPECT_GT(problems, 15);
}

/// No algorithm is quicker by more than the 3 % to which estimates are accurate, and no block that can hold a head is
/// quicker at all. Within its algorithm, the plan is the cheapest. Returns whether there is a plan.
bool expect_best(const GpuDenseProblem& problem, const GpuModel& gpu) {
  constexpr double accuracy = 0.97, of_ties = 0.999;
  const std::string name = test::choice_of(problem, gpu).problem;
  const bool chooses = problem.algorithm == DenseAlgorithm::automatic;
  const std::optional<GpuDensePlan> plan = planned(problem, gpu);
  const auto algorithm = plan ? plan->algorithm : problem.algorithm;
  bool held = false;
  for (const DenseRule& rule : dense_rules(problem, gpu)) {
    const Survey<GpuDensePlan> all = survey(rule);
    const bool head = rule.name == "head";  // its rule has preferences instead of estimates
    held = held || (head && !all.cheapest.empty());
    if (rule.name == to_string(algorithm)) {
      const bool found =
          std::ranges::find(all.cheapest, plan ? test::text_of(*plan) : "",
                            [](const GpuDensePlan& other) { return test::text_of(other); }) != all.cheapest.end();
      EXPECT_EQ(found, plan.has_value()) << name << ": not one of the cheapest plans";
      EXPECT_TRUE(plan || all.cheapest.empty()) << name << ": refused, and there are plans";
      EXPECT_TRUE(head || !plan || all.least_time >= of_ties * plan->microseconds) << name;
    } else if (chooses && plan && head) {
      for (const GpuDensePlan& other : all.cheapest) {
        EXPECT_EQ(algorithm, DenseAlgorithm::cluster) << name << ": a block can hold the matrix";
        EXPECT_LT(plan->microseconds, other.microseconds) << name;
      }
    } else if (chooses && plan && (!held || rule.name == "cluster")) {
      EXPECT_TRUE(all.least_time >= accuracy * plan->microseconds) << name << ": " << rule.name;
    }
  }
  return plan.has_value();
}

TEST(BestPlans, OfDenseCellsAreTheCheapestOfTheirAlgorithmAndNoneIsClearlyQuicker) {
  int problems = 0, refused = 0;
  test::visit_dense([&](const GpuDenseProblem& problem, const GpuModel& gpu) {
    const bool any = expect_best(problem, gpu);
    EXPECT_TRUE(any || problem.algorithm != DenseAlgorithm::automatic);
    ++problems, refused += any ? 0 : 1;
  });
  EXPECT_GT(problems, 150);
  EXPECT_GT(refused, 0);
}

/// Sizes where one algorithm takes over from another.
TEST(BestPlans, OfDenseCellsChangeTheirAlgorithmWhereEstimatesCross) {
  for (const Index rows : {8, 24, 48, 64, 96}) {
    for (const Index hidden : {448, 512, 640, 768, 896, 1024}) {
      GpuDenseProblem problem;
      problem.rows = rows, problem.steps = 1024, problem.hidden = hidden;
      EXPECT_TRUE(expect_best(problem, h200()));
    }
  }
}

/// Scan cells: rows first, then channels. Dense cells: the least time; ties within a thousandth go to more row parts.
TEST(BestPlans, OnACpuAreTheCheapestOfTheFirstRuleThatApplies) {
  int problems = 0;
  test::visit_cpu([&](const Problem& problem, const CpuModel& cpu) {
    const std::string name = test::choice_of(problem, cpu).problem;
    const Plan plan = plan_of(problem, cpu);
    for (const Rule<Plan>& rule : cpu_rules(problem, cpu)) {
      std::vector<Plan> plans;
      if (rule.refused.empty())
        rule.model.for_each([&](const csp::Solution& s) { return plans.push_back(rule.plan_of(s)), true; });
      if (plans.empty()) continue;
      for (const Plan& other : plans) {
        if (problem.cell->info.scan)
          EXPECT_GE(std::pair(plan.row_parts, plan.channel_parts), std::pair(other.row_parts, other.channel_parts));
        else
          EXPECT_GE(other.microseconds, 0.999 * plan.microseconds) << name;
      }
      EXPECT_NE(std::ranges::find(plans, plan), plans.end()) << name;
      break;
    }
    ++problems;
  });
  EXPECT_GT(problems, 25);
}

/// Blocks that share a multiprocessor, with what the system reserves for each.
template <class GpuPlan>
void expect_room(const GpuPlan& plan, const GpuModel& gpu) {
  EXPECT_GE(plan.threads(), 1);
  EXPECT_LE(plan.threads(), 1024);
  EXPECT_GE(plan.blocks, 1);
  EXPECT_LE(plan.blocks * plan.threads(), gpu.threads);
  EXPECT_GE(plan.shared, 0);
  EXPECT_LE(plan.shared, gpu.block_bytes);
  EXPECT_LE(plan.blocks * (plan.shared + kReservedBytes), gpu.shared_bytes + (plan.blocks == 1 ? kReservedBytes : 0));
}

void expect_fit(const GpuProductProblem& problem, const GpuProductPlan& plan, const GpuModel& gpu) {
  expect_room(plan, gpu);
  EXPECT_GE(plan.splits * plan.split_k, problem.k);
  EXPECT_LT((plan.splits - 1) * plan.split_k, problem.k);
  EXPECT_TRUE(!problem.one_split || plan.splits == 1);
  EXPECT_TRUE(!plan.warpgroups || has_warpgroups(gpu));
  EXPECT_TRUE(!plan.pairs || (plan.warpgroups && plan.split_k % 64 == 0 && !problem.exact));
}

void expect_fit(const GpuScanProblem& problem, const GpuScanPlan& plan, const GpuModel& gpu) {
  expect_room(plan, gpu);
  EXPECT_EQ(problem.channels % plan.vector, 0);
  EXPECT_GE(plan.grid, 1);
  if (plan.algorithm == ScanAlgorithm::direct) {
    EXPECT_GE(plan.grid * plan.groups, problem.rows * plan.channel_tiles(problem.channels));
    return;
  }
  EXPECT_EQ(plan.tiles, problem.rows * plan.channel_tiles(problem.channels) * plan.chunks(problem.steps));
  EXPECT_LE(plan.grid, Index{plan.blocks} * gpu.multiprocessors) << "blocks wait for each other: all must run";
}

void expect_fit(const GpuLayerProblem& problem, const GpuScanPlan& plan, const GpuModel& gpu) {
  expect_room(plan, gpu);
  if (plan.algorithm == ScanAlgorithm::direct || plan.algorithm == ScanAlgorithm::scan)
    expect_fit(problem.scan, plan, gpu);
  if (plan.algorithm == ScanAlgorithm::fused) {
    EXPECT_EQ(plan.shared, fused_shared_bytes(plan, problem));
  }
  if (plan.algorithm == ScanAlgorithm::epilogue) {
    EXPECT_EQ(plan.shared, epilogue_shared_bytes(plan, problem));
  }
}

void expect_fit(const GpuDenseProblem& problem, const GpuDensePlan& plan, const GpuModel& gpu) {
  expect_room(plan, gpu);
  EXPECT_GE(plan.grid, 1);
  EXPECT_LE(plan.resident, plan.chunks);
  if (plan.algorithm == DenseAlgorithm::step || plan.algorithm == DenseAlgorithm::diagonal) return;
  EXPECT_GE(plan.slots * plan.slices, problem.rows) << "every row has a slot";
  if (takes_the_chip(plan)) {
    EXPECT_LE(plan.teams * plan.clusters * plan.cluster, gpu.multiprocessors) << "all blocks must run at once";
  }
}

void expect_fit(const Problem& problem, const Plan& plan, const CpuModel&) {
  constexpr Index vector = 16;  // floats: fewest units or channels of a thread
  EXPECT_GE(std::min(plan.row_parts, plan.channel_parts), 1);
  EXPECT_LE(plan.threads(), problem.threads);
  EXPECT_TRUE(plan.algorithm == Algorithm::scan || plan.row_parts <= problem.rows);
  EXPECT_LE(plan.channel_parts, std::max<Index>(1, problem.hidden / vector));
  EXPECT_TRUE(!problem.exact || plan.algorithm == Algorithm::sequential);
}

TEST(BestPlans, FitTheirMachine) {
  test::visit_problems([](const auto& problem, const auto& machine) {
    SCOPED_TRACE(test::choice_of(problem, machine).problem);
    if (const auto plan = planned(problem, machine)) expect_fit(problem, *plan, machine);
  });
}

TEST(BestPlans, AreTheSameWhenAskedForAgain) {
  test::visit_problems([](const auto& problem, const auto& machine) {
    const auto remembered = planned(problem, machine);
    const PlansAskedFor anew;  // bypasses the cache of recent plans
    EXPECT_EQ(planned(problem, machine), remembered) << test::choice_of(problem, machine).problem;
  });
}

}  // namespace
}  // namespace penstock::plan
