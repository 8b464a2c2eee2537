#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/shared_cache.h"
#include "penstock/csp.h"

namespace penstock::plan {

/// One algorithm for one problem on one machine: variables, constraints, a cost, and the plan for a solution. A rule
/// that cannot apply to the problem has only the reason.
template <class Plan>
struct Rule {
  std::string name;  ///< Such as "cluster"
  csp::Model model = {};
  std::vector<csp::Expression> variables = {};  ///< Variables of the model in the order of their declaration
  std::function<Plan(const csp::Solution&)> plan_of = {};
  std::string refused = {};  ///< Why no values of the variables give a plan; the model is then empty
  /// If the model has no solution: returns the resources that a plan needs and those available. None: report the
  /// conflicting constraints instead.
  std::function<std::string()> shortage = {};

  csp::Expression var(std::string called, csp::Domain domain) {
    return variables.emplace_back(model.var(std::move(called), std::move(domain)));
  }
};

template <class Plan>
std::optional<Plan> best_plan(const Rule<Plan>& rule) {
  if (!rule.refused.empty()) return std::nullopt;
  const std::optional<csp::Solution> best = rule.model.solve();
  return best ? std::optional(rule.plan_of(*best)) : std::nullopt;
}

/// Returns at most `most` plans, the best ones first.
template <class Plan>
std::vector<Plan> best_plans(const Rule<Plan>& rule, csp::Integer most) {
  std::vector<Plan> plans;
  if (!rule.refused.empty()) return plans;
  for (const csp::Solution& solution : rule.model.all(most)) plans.push_back(rule.plan_of(solution));
  return plans;
}

/// Returns the constraints that cannot hold together, each with its text, for a rule without a plan.
template <class Plan>
std::vector<std::string> conflict_of(const Rule<Plan>& rule) {
  if (!rule.refused.empty()) return {rule.refused};
  std::vector<std::string> names = rule.model.conflict();
  for (std::string& name : names) {
    const std::string text = rule.model.constraint_text(name);
    if (text != name) name += ": " + text;
  }
  return names;
}

/// Returns a readable reason why a rule has no plan.
template <class Plan>
std::string reason_of(const Rule<Plan>& rule) {
  if (!rule.refused.empty()) return rule.refused;
  if (rule.shortage) return rule.shortage();
  std::string reason;
  for (const std::string& name : conflict_of(rule)) reason += (reason.empty() ? "" : "; ") + name;
  return reason;
}

/// A cache of the most recent plans. Solving takes a fraction of a millisecond, and consecutive calls are often alike.
template <class Problem, class Model, class Plan>
class PlanMemo {
 public:
  template <class Make>
  Plan get(const Problem& problem, const Model& machine, const Make& make) {
    return *plans_.get({problem, machine}, [&] { return std::make_shared<const Plan>(make()); });
  }

 private:
  SharedCache<std::pair<Problem, Model>, const Plan> plans_{64};
};

}  // namespace penstock::plan
