#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "plan/machine.h"
#include "plan/rule.h"

namespace penstock::plan {

struct GpuDenseProblem;
struct GpuLayerProblem;
struct GpuProductProblem;
struct GpuScanProblem;
struct Problem;

/// A solution of a rule by names, so that it can be written down: "cluster", {"cluster": 8, "rows": 16, ...}.
struct PlanChoice {
  std::string rule;
  std::vector<std::pair<std::string, csp::Integer>> variables;
  bool operator==(const PlanChoice&) const = default;
};

/// What was the quickest of the plans for one work that were measured.
struct TunedPlan {
  PlanChoice choice;
  double microseconds = 0;  ///< Of the op that the plan is a part of
};

/// Such plans of one machine, by the name of the work (work_of()), and costs that take the place of those built in.
struct Tuning {
  std::string file;
  std::map<std::string, TunedPlan, std::less<>> plans;
  std::string costs = {};  ///< For read_costs(); empty: none
};

/// What plans are asked for by: everything that a plan depends on, and nothing else. T is of it where chunks of T are.
std::string work_of(const Problem& problem);
std::string work_of(const GpuDenseProblem& problem);
std::string work_of(const GpuScanProblem& problem);
std::string work_of(const GpuLayerProblem& problem);
std::string work_of(const GpuProductProblem& problem);

/// What must be the same for measured plans to hold: chip and driver, or CPU, instruction set and cores.
std::string identity_of(const GpuModel& gpu);
std::string identity_of(const CpuModel& cpu);

/// PENSTOCK_PLANS, else plans.json in the folder of compiled kernels; empty: there is none.
std::string plan_file();
/// Its content; empty if there is none, or for the reason that `problem` says. The file in the folder of compiled
/// kernels is read only if nobody but this user and root can write to it.
std::string text_of_plan_file(std::string& problem);
/// The plans for that machine in a text of plan_file(). Throws Error: bad_input naming what is wrong, incompatible for
/// another version, or where there are plans of other machines alone.
Tuning read_tuning(const std::string& text, const std::string& file, const std::string& identity);
/// Throws Error(bad_input) for a text that is no file of plans, of whatever version or machine.
void check_plan_file(const std::string& text, const std::string& file);
/// What read_tuning() gives of text_of_plan_file(), read once a process; null where there is none. What is wrong with
/// the file is a warning, since everything can be planned without it.
std::shared_ptr<const Tuning> load_tuning(const std::string& identity);
/// A machine's plans and costs from plan_file(). Costs that are wrong are a warning, and none of them is taken.
void take_tuning(GpuModel& gpu);
void take_tuning(CpuModel& cpu);
/// `text` (empty: none yet) with these plans of a machine in the place of those of the same work; one without a rule
/// leaves the work to the planner. Costs take the place of those of the same names. Plans and costs of another version
/// are left out.
std::string add_to_tuning(const std::string& text, const std::string& identity,
                          const std::map<std::string, TunedPlan, std::less<>>& plans,
                          const std::vector<NamedCost>& costs = {});

/// While it lives, plans that this thread makes of a work are made from a choice; without one as if nothing had been
/// measured. One at a time for each work.
class Trial {
 public:
  Trial(std::string work, std::optional<PlanChoice> choice);
  ~Trial();
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

 private:
  std::string work_;
};

/// The trial of a work; null: there is none.
const std::optional<PlanChoice>* trial_of(const std::string& work);

/// A plan to measure.
struct Candidate {
  PlanChoice choice;
  std::string text;         ///< As for a person
  double microseconds = 0;  ///< As estimated; 0: not estimated
};

/// A plan that was asked for.
struct AskedPlan {
  std::string work;
  std::string text;         ///< As it is chosen without measurements
  double microseconds = 0;  ///< As estimated; 0: not estimated
  /// Of each algorithm the best ones, at most so many.
  std::function<std::vector<Candidate>(std::size_t most)> candidates;
  /// What is estimated of a candidate by other costs of the machine, which has these; microseconds, 0: nothing.
  std::function<double(const PlanChoice& choice, std::span<const double> costs)> estimate;
};

/// Hears of the plans that this thread asks for while it lives; of each work once. One at a time.
class Recording {
 public:
  Recording();
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  std::vector<AskedPlan> take() { return std::move(asked_); }
  void add(AskedPlan plan);

 private:
  std::vector<AskedPlan> asked_;
};

/// This thread's; null: there is none.
Recording* recording();
/// What is planned while it lives is not recorded: it is asked for by the planner itself.
class Unrecorded {
 public:
  Unrecorded();
  ~Unrecorded();
  Unrecorded(const Unrecorded&) = delete;
  Unrecorded& operator=(const Unrecorded&) = delete;

 private:
  Recording* before_;
};

/// Whether this thread's plans must not come from the memory of plans.
bool measuring();

/// Throws Error(unsupported): a trial's choice is no plan of the work.
[[noreturn]] void fail_trial(const std::string& work, const PlanChoice& choice);

/// The plan of that choice, if the rules still have it.
template <class Plan>
std::optional<Plan> plan_of_choice(const PlanChoice& choice, std::vector<Rule<Plan>> rules) {
  for (Rule<Plan>& rule : rules) {
    if (rule.name != choice.rule || !rule.refused.empty()) continue;
    const std::vector<std::string> names = rule.model.variables();
    if (names.size() != choice.variables.size()) return std::nullopt;
    for (std::size_t i = 0; i < names.size(); ++i) {
      const auto& [name, value] = choice.variables[i];
      if (name != names[i]) return std::nullopt;
      rule.model.require("as measured", rule.variables[i] == value);
    }
    const std::optional<csp::Solution> solution = rule.model.first();
    return solution ? std::optional(rule.plan_of(*solution)) : std::nullopt;
  }
  return std::nullopt;
}

std::vector<Candidate> candidates(const Problem& problem, const CpuModel& cpu, std::size_t most);
std::vector<Candidate> candidates(const GpuDenseProblem& problem, const GpuModel& gpu, std::size_t most);
std::vector<Candidate> candidates(const GpuScanProblem& problem, const GpuModel& gpu, std::size_t most);
std::vector<Candidate> candidates(const GpuLayerProblem& problem, const GpuModel& gpu, std::size_t most);
std::vector<Candidate> candidates(const GpuProductProblem& problem, const GpuModel& gpu, std::size_t most);

double estimate(const PlanChoice& choice, const Problem& problem, const CpuModel& cpu);
double estimate(const PlanChoice& choice, const GpuDenseProblem& problem, const GpuModel& gpu);
double estimate(const PlanChoice& choice, const GpuScanProblem& problem, const GpuModel& gpu);
double estimate(const PlanChoice& choice, const GpuLayerProblem& problem, const GpuModel& gpu);
double estimate(const PlanChoice& choice, const GpuProductProblem& problem, const GpuModel& gpu);

/// The plan that a trial asks for, or that was measured, or else the one that `ranked` makes. `possible` gives the
/// rules of the problem with everything that can run.
template <class Plan, class Problem, class Machine, class Possible, class Ranked>
Plan plan_as_measured(const Problem& problem, const Machine& machine, const Possible& possible, const Ranked& ranked) {
  const Tuning* const tuned = machine.tuned.get();
  if (tuned == nullptr && !measuring()) return ranked();
  const std::string work = work_of(problem);
  if (Recording* const to = recording()) {
    const Unrecorded within;
    Plan plan = ranked();
    to->add({work, plan.explain(), plan.microseconds,
             [problem, machine](std::size_t most) { return candidates(problem, machine, most); },
             [problem, machine](const PlanChoice& choice, std::span<const double> costs) {
               Machine other = machine;
               set_costs(other.costs, costs);
               return estimate(choice, problem, other);
             }});
    return plan;
  }
  if (const std::optional<PlanChoice>* trial = trial_of(work)) {
    if (!*trial) return ranked();
    std::optional<Plan> plan = plan_of_choice(**trial, possible());
    if (!plan) fail_trial(work, **trial);
    plan->why = "on trial";
    return *plan;
  }
  if (tuned == nullptr) return ranked();
  const auto found = tuned->plans.find(work);
  if (found == tuned->plans.end()) return ranked();
  if (std::optional<Plan> plan = plan_of_choice(found->second.choice, possible())) {
    plan->why = "the fastest plan that was measured (" + tuned->file + ")";
    return *plan;
  }
  Plan plan = ranked();
  plan.why += "; what was measured (" + tuned->file + ") is none of the plans that are possible here";
  return plan;
}

/// Of each rule the best solutions, at most `most`, no two of them alike in all but `detail`, a variable that hardly
/// matters.
template <class Plan>
std::vector<Candidate> candidates_of(const std::vector<Rule<Plan>>& rules, std::size_t most,
                                     const std::string& detail = "stages") {
  constexpr csp::Integer looked_at = 8;
  std::vector<Candidate> all;
  for (const Rule<Plan>& rule : rules) {
    if (!rule.refused.empty()) continue;
    const std::vector<std::string> names = rule.model.variables();
    std::vector<std::vector<csp::Integer>> seen;
    for (const csp::Solution& solution : rule.model.all(looked_at * static_cast<csp::Integer>(most))) {
      std::vector<csp::Integer> shape = solution.values();
      Candidate candidate;
      candidate.choice.rule = rule.name;
      for (std::size_t i = 0; i < names.size(); ++i) {
        candidate.choice.variables.emplace_back(names[i], shape[i]);
        if (names[i] == detail) shape[i] = 0;
      }
      if (seen.size() == most || std::ranges::find(seen, shape) != seen.end()) continue;
      seen.push_back(shape);
      const Plan plan = rule.plan_of(solution);
      candidate.text = plan.explain();
      candidate.microseconds = plan.microseconds;
      all.push_back(std::move(candidate));
    }
  }
  return all;
}

}  // namespace penstock::plan
