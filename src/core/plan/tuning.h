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

/// A solution of a rule by names, for files: "cluster", {"cluster": 8, "rows": 16, ...}.
struct PlanChoice {
  std::string rule;
  std::vector<std::pair<std::string, csp::Integer>> variables;
  bool operator==(const PlanChoice&) const = default;
};

/// The fastest measured plan for one problem.
struct TunedPlan {
  PlanChoice choice;
  double microseconds = 0;  ///< Time of the whole op that uses the plan
};

/// Tuned plans of one machine by the key of the problem (work_of()), and costs that replace the built-in ones.
struct Tuning {
  std::string file;
  std::map<std::string, TunedPlan, std::less<>> plans;
  std::string costs = {};  ///< Text for read_costs(); empty: none
};

/// Returns the key of a problem, its *work*: exactly the values that a plan depends on. It has T only for plans with
/// chunks of T.
std::string work_of(const Problem& problem);
std::string work_of(const GpuDenseProblem& problem);
std::string work_of(const GpuScanProblem& problem);
std::string work_of(const GpuLayerProblem& problem);
std::string work_of(const GpuProductProblem& problem);

/// Returns the identity of a machine for which measured plans are valid: chip and driver, or CPU, instruction set and
/// number of cores.
std::string identity_of(const GpuModel& gpu);
std::string identity_of(const CpuModel& cpu);

/// Returns PENSTOCK_PLANS, or plans.json in the folder of compiled kernels; empty if there is none.
std::string plan_file();
/// Returns the content of plan_file(); empty if there is no file, or if it must not be read, with the reason in
/// `problem`. The file in the folder of compiled kernels is read only if nobody except this user and root can write to
/// it.
std::string text_of_plan_file(std::string& problem);
/// Returns the plans for a machine in the text of plan_file(). Throws Error: bad_input with the fault, incompatible for
/// another version or if the file has only plans of other machines.
Tuning read_tuning(const std::string& text, const std::string& file, const std::string& identity);
/// Throws Error(bad_input) for a text that is not a file of plans. Any version and machine are valid.
void check_plan_file(const std::string& text, const std::string& file);
/// Returns the tuning of plan_file(), which is read once per process; null if there is none. A faulty file is only a
/// warning, since the planner works without it.
std::shared_ptr<const Tuning> load_tuning(const std::string& identity);
/// Sets plans and costs of a machine from plan_file(). If a cost is invalid, all costs are ignored with a warning.
void take_tuning(GpuModel& gpu);
void take_tuning(CpuModel& cpu);
/// Returns `text` (empty for a new file) with these plans of a machine, which replace those of the same work. A plan
/// without a rule leaves the work to the planner. Costs replace those of the same names. Plans and costs of another
/// version are removed.
std::string add_to_tuning(const std::string& text, const std::string& identity,
                          const std::map<std::string, TunedPlan, std::less<>>& plans,
                          const std::vector<NamedCost>& costs = {});

/// During its lifetime, this thread plans a work by a given choice; without a choice, as if nothing had been measured.
/// One trial at a time per work.
class Trial {
 public:
  Trial(std::string work, std::optional<PlanChoice> choice);
  ~Trial();
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

 private:
  std::string work_;
};

/// Returns the trial of a work; null if there is none.
const std::optional<PlanChoice>* trial_of(const std::string& work);

/// A plan to measure.
struct Candidate {
  PlanChoice choice;
  std::string text;         ///< Readable form
  double microseconds = 0;  ///< Estimated time; 0: not estimated
};

/// A plan that a call has requested.
struct AskedPlan {
  std::string work;
  std::string text;         ///< Readable form of the plan chosen without measurements
  double microseconds = 0;  ///< Estimated time; 0: not estimated
  /// Returns the best candidates, at most `most` per algorithm.
  std::function<std::vector<Candidate>(std::size_t most)> candidates;
  /// Returns the estimate in microseconds for a candidate with these costs; 0: no estimate.
  std::function<double(const PlanChoice& choice, std::span<const double> costs)> estimate;
};

/// Records the plans that this thread requests during its lifetime, once per work. One recording at a time.
class PlansAskedFor {
 public:
  PlansAskedFor();
  ~PlansAskedFor();
  PlansAskedFor(const PlansAskedFor&) = delete;
  PlansAskedFor& operator=(const PlansAskedFor&) = delete;

  std::vector<AskedPlan> take() { return std::move(asked_); }
  void add(AskedPlan plan);

 private:
  std::vector<AskedPlan> asked_;
};

/// Returns the recording of this thread; null if there is none.
PlansAskedFor* recording();
/// Suspends recording during its lifetime, for plans that the planner itself requests.
class Unrecorded {
 public:
  Unrecorded();
  ~Unrecorded();
  Unrecorded(const Unrecorded&) = delete;
  Unrecorded& operator=(const Unrecorded&) = delete;

 private:
  PlansAskedFor* before_;
};

/// Returns whether this thread must not use cached plans.
bool measuring();

/// Throws Error(unsupported): the choice of a trial is not a plan of the work.
[[noreturn]] void fail_trial(const std::string& work, const PlanChoice& choice);

/// Returns the plan of a choice; none if the rules no longer allow it.
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

/// Returns the best candidates for any problem of the planner, at most `most` per algorithm.
template <class Problem, class Machine>
std::vector<Candidate> candidates(const Problem& problem, const Machine& machine, std::size_t most);

/// Returns the estimated microseconds of a choice; 0 if it is none of the problem's plans.
template <class Problem, class Machine>
double estimate(const PlanChoice& choice, const Problem& problem, const Machine& machine);

/// Returns the plan of a trial, else the measured plan, else the plan of `ranked`. `possible` returns the rules of the
/// problem with everything that can run.
template <class Plan, class Problem, class Machine, class Possible, class Ranked>
Plan plan_as_measured(const Problem& problem, const Machine& machine, const Possible& possible, const Ranked& ranked) {
  const Tuning* const tuned = machine.tuned.get();
  if (tuned == nullptr && !measuring()) return ranked();
  const std::string work = work_of(problem);
  if (PlansAskedFor* const to = recording()) {
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

/// Returns the best solutions of each rule, at most `most`. Solutions that differ only in `detail`, a variable of
/// little influence, count once.
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
