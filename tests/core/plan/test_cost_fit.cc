// Costs from measured times: what they find again, what they leave alone, and that the planner then decides by them.

#include "plan/cost_fit.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/random.h"
#include "plan/gpu/dense.h"
#include "plan/plan.h"
#include "plan/tuning.h"

namespace penstock::plan {
namespace {

CpuModel two_cores(const CpuCosts& costs = {}) {
  CpuModel cpu;
  cpu.name = "a CPU", cpu.isa = "none", cpu.cores = 2, cpu.vector_bytes = 64;
  cpu.costs = costs;
  return cpu;
}

Problem layer(const char* cell, Index rows, Index hidden, Index steps = 256) {
  Problem problem;
  problem.cell = &cell_traits(cell);
  problem.rows = rows, problem.hidden = hidden, problem.input = hidden, problem.steps = steps, problem.threads = 2;
  return problem;
}

template <class Costs>
std::vector<double> values_of(const Costs& costs) {
  std::vector<double> values;
  for (const auto& [name, value] : named_costs(costs)) values.push_back(value);
  return values;
}

/// All plans of some works, with the times that a machine of other costs would take, `noise` of each by chance.
template <class Problem, class Machine>
std::vector<MeasuredTime> times_on(const Machine& real, const Machine& planned, const std::vector<Problem>& works,
                                   double noise = 0) {
  Random random(5);
  std::vector<MeasuredTime> times;
  for (std::size_t w = 0; w < works.size(); ++w) {
    for (const Candidate& candidate : candidates(works[w], planned, 4)) {
      const double time = estimate(candidate.choice, works[w], real) * std::exp(noise * (2 * random.uniform() - 1));
      times.push_back({w, time, [work = works[w], planned, choice = candidate.choice](std::span<const double> costs) {
                         Machine other = planned;
                         set_costs(other.costs, costs);
                         return estimate(choice, work, other);
                       }});
    }
  }
  return times;
}

/// The mean of the squares of what estimates of works that were not measured are off by.
template <class Problem, class Machine>
double off(const std::vector<Problem>& works, const Machine& real, const Machine& by) {
  double sum = 0;
  int count = 0;
  for (const Problem& work : works) {
    for (const Candidate& candidate : candidates(work, real, 4)) {
      const double ratio = estimate(candidate.choice, work, by) / estimate(candidate.choice, work, real);
      sum += std::log(ratio) * std::log(ratio), ++count;
    }
  }
  return std::exp(std::sqrt(sum / count));
}

/// A processor twice as quick, whose barriers are four times as slow.
CpuCosts other_costs() {
  CpuCosts costs;
  costs.multiply_adds *= 2, costs.gates *= 2, costs.sharing *= 8, costs.exchanged *= 3, costs.chunk_pass *= 1.3;
  return costs;
}

std::vector<Problem> measured_layers() {
  return {layer("lstm", 1, 96),  layer("lstm", 1, 512), layer("lstm", 2, 128),        layer("gru", 4, 256),
          layer("gru", 16, 128), layer("elman", 1, 64), layer("mingru", 1, 64, 8192), layer("minlstm", 8, 64, 4096)};
}

TEST(CostFit, FindsTheCostsOfAnotherMachine) {
  const CpuModel planned = two_cores(), real = two_cores(other_costs());
  CpuModel fitted = planned;
  const CostFit fit = fit_costs(values_of(planned.costs), times_on(real, planned, measured_layers(), 0.05));
  set_costs(fitted.costs, fit.costs);
  EXPECT_LT(fit.off_after, 1.2);
  EXPECT_GT(fit.off_before, 1.5);
  const std::vector<Problem> others = {layer("lstm", 1, 256), layer("gru", 3, 64), layer("elman", 8, 256),
                                       layer("mingru", 2, 32, 4096)};
  EXPECT_LT(off(others, real, fitted), 1.2) << "layers that were not measured";
  EXPECT_GT(off(others, real, planned), 1.5);
}

/// Fitted costs decide for a layer that nobody measured.
TEST(CostFit, ThePlannerDecidesByThem) {
  const Problem unmeasured = layer("lstm", 1, 80);
  const CpuModel planned = two_cores(), real = two_cores(other_costs());
  ASSERT_EQ(make_plan(unmeasured, planned).channel_parts, 2);
  ASSERT_EQ(make_plan(unmeasured, real).channel_parts, 1);
  CpuModel fitted = planned;
  set_costs(fitted.costs, fit_costs(values_of(planned.costs), times_on(real, planned, measured_layers())).costs);
  EXPECT_EQ(make_plan(unmeasured, fitted).channel_parts, 1);
}

TEST(CostFit, WhatNoTimeDependsOnStaysToTheBit) {
  const CpuModel planned = two_cores(), real = two_cores(other_costs());
  const std::vector<NamedCost> before = named_costs(planned.costs);
  const CostFit fit = fit_costs(values_of(planned.costs), times_on(real, planned, std::vector{layer("lstm", 2, 128)}));
  std::size_t moved = 0;
  for (std::size_t i = 0; i < before.size(); ++i) {
    const std::string& name = before[i].first;
    if (name == "bytes" || name == "packing" || name == "chunk_pass" || name.starts_with("wave_")) {
      EXPECT_EQ(fit.costs[i], before[i].second) << name;
    }
    if (fit.costs[i] != before[i].second) ++moved;
  }
  EXPECT_GT(moved, 0U);
  EXPECT_EQ(fit_costs(values_of(planned.costs), {}).costs, values_of(planned.costs)) << "nothing was measured";
}

TEST(CostFit, WhatIsAsEstimatedMovesNothing) {
  const CpuModel planned = two_cores();
  const CostFit fit = fit_costs(values_of(planned.costs), times_on(planned, planned, measured_layers()));
  EXPECT_NEAR(fit.off_before, 1, 1e-12);
  const std::vector<double> before = values_of(planned.costs);
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(fit.costs[i] / before[i], 1, 1e-9);
}

/// A work that is slower as a whole, for whatever reason, says little of costs where others are as they should be.
TEST(CostFit, OneWorkAloneDoesNotChangeTheMachine) {
  const CpuModel planned = two_cores();
  std::vector<MeasuredTime> times = times_on(planned, planned, measured_layers());
  for (MeasuredTime& time : times) {
    if (time.work == 0) time.microseconds *= 2;
  }
  CpuModel fitted = planned;
  set_costs(fitted.costs, fit_costs(values_of(planned.costs), times).costs);
  EXPECT_NEAR(fitted.costs.multiply_adds / planned.costs.multiply_adds, 1, 0.15);
}

/// One cost of two plans, of which one is overestimated and the other is not: made smaller for the sake of the first,
/// it puts the other one before a plan that is as quick as estimated.
TEST(CostFit, CostsThatWouldChooseSlowerPlansAreNotTaken) {
  const auto fitted = [](double time_of_other) {
    const auto plan = [](std::size_t cost, double factor) {
      return [=](std::span<const double> costs) { return factor * costs[cost]; };
    };
    std::vector<MeasuredTime> times;
    for (std::size_t work = 0; work < 3; ++work) {
      times.push_back({work, 100, plan(0, 100)});
      times.push_back({work, time_of_other, plan(1, 101)});
      times.push_back({work, 200, plan(1, 300)});
    }
    return fit_costs({1, 1}, times).costs;
  };
  EXPECT_EQ(fitted(105), (std::vector<double>{1, 1}));
  EXPECT_LT(fitted(95)[1], 0.95) << "where that plan is the quicker one";
}

/// Fits the costs of a GPU, which are many more.
TEST(CostFit, FindsTheCostsOfAnotherChip) {
  GpuModel planned = named_gpu("h200"), real = planned;
  real.costs.cluster.exchange_of_16 *= 1.5, real.costs.cluster.exchange_of_8 *= 1.5, real.costs.chip.exchange *= 1.4;
  real.costs.team.tensor_tile *= 1.3, real.costs.step.launch *= 0.6;
  std::vector<GpuDenseProblem> works;
  for (const Index hidden : {256, 512, 768, 1024}) {
    for (const Index rows : {4, 16, 64}) {
      GpuDenseProblem problem;
      problem.rows = rows, problem.steps = 256, problem.hidden = hidden;
      works.push_back(problem);
    }
  }
  const std::vector<GpuDenseProblem> measured(works.begin(), works.begin() + 6), others(works.begin() + 6, works.end());
  GpuModel fitted = planned;
  set_costs(fitted.costs, fit_costs(values_of(planned.costs), times_on(real, planned, measured)).costs);
  EXPECT_LT(off(others, real, fitted), off(others, real, planned));
  EXPECT_LT(off(measured, real, fitted), 1.05);
}

}  // namespace
}  // namespace penstock::plan
