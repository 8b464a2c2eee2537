#include "plan/plan.h"

#include "base/check.h"
#include "base/plural.h"
#include "plan/cpu/rules.h"
#include "plan/tuning.h"

namespace penstock::plan {
namespace {

/// A problem with all traits of its cell by value, whatever a rule reads of them.
struct CpuQuestion {
  Problem problem;  // without its cell
  CellTraits cell;

  explicit CpuQuestion(const Problem& asked) : problem(asked), cell(*asked.cell) { problem.cell = nullptr; }
  bool operator==(const CpuQuestion&) const = default;
};

}  // namespace

std::string Plan::explain() const {
  return fmt::format("{} on {} ({} x {}{}): {}", to_string(algorithm), counted(threads(), "thread"),
                     counted(row_parts, "row part"), counted(channel_parts, "channel part"),
                     chunk > 0 ? fmt::format(", chunks of {}", chunk) : "", why);
}

std::vector<Rule<Plan>> cpu_rules(const Problem& problem, const CpuModel& cpu) {
  check_enum("algorithm", problem.algorithm, Algorithm::scan);
  return (problem.cell->info.scan ? cpu_scan_rules : cpu_dense_rules)(problem, cpu, Scope::worthwhile);
}

std::vector<Rule<Plan>> possible_cpu_rules(const Problem& problem, const CpuModel& cpu) {
  check_enum("algorithm", problem.algorithm, Algorithm::scan);
  return (problem.cell->info.scan ? cpu_scan_rules : cpu_dense_rules)(problem, cpu, Scope::possible);
}

Plan make_plan(const Problem& problem, const CpuModel& cpu) {
  static PlanMemo<CpuQuestion, CpuModel, Plan> memo;
  const auto ranked = [&] {
    for (const Rule<Plan>& rule : cpu_rules(problem, cpu)) {
      if (const std::optional<Plan> plan = best_plan(rule)) return *plan;
    }
    fail(ErrorCode::unsupported, "there is no plan for {} of {} of {} on {}", counted(problem.rows, "row"),
         counted(problem.hidden, "unit"), problem.cell->info.name, counted(problem.threads, "thread"));
  };
  const auto make = [&] {
    if (problem.algorithm != Algorithm::automatic) return ranked();
    return plan_as_measured<Plan>(
        problem, cpu, [&] { return possible_cpu_rules(problem, cpu); }, ranked);
  };
  return measuring() ? make() : memo.get(CpuQuestion(problem), cpu, make);
}

}  // namespace penstock::plan
