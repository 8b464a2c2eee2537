// Dense cells on a CPU: groups of rows that go on their own, and threads of a group that share its units.

#include <algorithm>

#include "base/check.h"
#include "plan/cpu_rules.h"

namespace penstock::plan {
namespace {

constexpr Index kFewestUnits = 16;  // of one thread: a vector of floats

Index recurrent_weights(const Problem& problem) {
  return problem.cell->info.gates * problem.hidden * (problem.hidden / problem.heads);
}

/// What is known of a problem before anything is chosen.
struct DenseFacts {
  Index parts;  ///< Groups of rows, if every thread had its own
  Index matrix;
  bool few;  ///< Such groups would have so few rows that they wait for the recurrent matrix, which each reads each step
  bool worth;  ///< Fewer groups, whose threads meet at a barrier, are worth that
  bool pairs;  ///< Two threads each share a matrix that no core's cache holds
};

DenseFacts facts_of(const Problem& problem, const CpuCosts& costs) {
  DenseFacts facts{};
  facts.parts = std::min<Index>(problem.threads, problem.rows);
  facts.matrix = recurrent_weights(problem);
  const auto rows = static_cast<double>(problem.rows), parts = static_cast<double>(facts.parts);
  const bool large = static_cast<double>(facts.matrix) >= costs.large_matrix;
  facts.few = facts.parts > 1 && rows < parts * costs.group_rows;
  facts.worth = static_cast<double>(facts.matrix * problem.rows / problem.threads) >= costs.gathering &&
                (problem.rows > facts.parts || large);
  facts.pairs = !facts.few && large && facts.parts % 2 == 0 && rows < parts * costs.large_matrix_rows;
  return facts;
}

double dense_microseconds(const Problem& problem, const CpuCosts& costs, const Plan& plan) {
  const auto parts = static_cast<double>(plan.channel_parts);
  const auto rows_each = static_cast<double>((problem.rows + plan.row_parts - 1) / plan.row_parts);
  const auto units = static_cast<double>(problem.hidden), steps = static_cast<double>(problem.steps);
  const double products = rows_each * static_cast<double>(recurrent_weights(problem)) / costs.multiply_adds;
  const double input =
      rows_each * static_cast<double>(problem.cell->info.gates * problem.input) * units / costs.multiply_adds;
  const double cell = rows_each * units / costs.gates;
  return steps * ((products + input + cell) / parts + (plan.channel_parts > 1 ? costs.barrier : 0));
}

}  // namespace

std::vector<Rule<Plan>> cpu_dense_rules(const Problem& problem, const CpuModel& cpu, Scope scope) {
  require(problem.algorithm != Algorithm::scan,
          "algorithm must be automatic or sequential for cell {}, not scan: its gates depend on the previous state",
          problem.cell->info.name);
  const CpuCosts costs = cpu.costs;
  const DenseFacts facts = facts_of(problem, costs);
  Rule<Plan> rule{.name = "sequential"};
  csp::Model& m = rule.model;
  const auto row_parts = rule.var("row_parts", csp::range(1, facts.parts));
  const auto channel_parts = rule.var("channel_parts", csp::range(1, problem.threads));
  m.require("there are so many threads", row_parts * channel_parts <= problem.threads);
  const bool all = scope == Scope::possible;
  if (facts.few && facts.worth && !all) {
    m.require("groups have rows enough not to wait for the matrix",
              row_parts <= std::max<Index>(1, problem.rows / static_cast<Index>(costs.group_rows)));
  }
  if (facts.pairs && !all) m.require("pairs of threads share a large matrix", row_parts <= facts.parts / 2);
  const auto step_work = csp::ceil_div(problem.rows, row_parts) * facts.matrix;
  if (all) {
    m.require("each thread has units", channel_parts * kFewestUnits <= std::max(problem.hidden, kFewestUnits));
  } else {
    const auto worth_a_barrier =
        csp::min(channel_parts * static_cast<Index>(costs.sharing), static_cast<Index>(costs.most_sharing));
    m.require("a share of a step is worth a barrier",
              channel_parts == 1 || channel_parts * worth_a_barrier <= step_work);
  }
  // Groups wait for nobody, so there are as many as may be; then threads of a group.
  m.maximise(row_parts * (problem.threads + 1) + channel_parts);
  rule.plan_of = [problem, costs, row_parts, channel_parts](const csp::Solution& solution) {
    Plan plan;
    plan.row_parts = static_cast<int>(solution[row_parts]);
    plan.channel_parts = static_cast<int>(solution[channel_parts]);
    plan.microseconds = dense_microseconds(problem, costs, plan);
    plan.why = plan.channel_parts > 1 ? "few rows for each thread, and a step large enough to share units at a barrier"
               : plan.row_parts > 1   ? "rows are independent: no thread waits for another"
               : problem.threads == 1 ? "there is one thread"
                                      : "one row, and a step too small to share";
    return plan;
  };
  std::vector<Rule<Plan>> rules;
  rules.push_back(std::move(rule));
  return rules;
}

}  // namespace penstock::plan
