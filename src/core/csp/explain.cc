#include <algorithm>
#include <utility>

#include "base/check.h"
#include "csp/search.h"

namespace penstock::csp {
namespace {

/// Search steps to test whether a constraint can be omitted from a reason; they take some milliseconds.
constexpr Integer kEffort = 500;

/// Returns the indices of at most `most` values nearest to a chosen one, without it, in ascending order.
std::vector<Integer> neighbours(const Domain& domain, Integer chosen, Integer most) {
  Integer low = chosen, high = chosen;
  while (high - low < most && high - low + 1 < domain.size()) {
    const bool up = high + 1 < domain.size() && (low == 0 || high - chosen <= chosen - low);
    up ? ++high : --low;
  }
  std::vector<Integer> all;
  for (Integer i = low; i <= high; ++i) {
    if (i != chosen) all.push_back(i);
  }
  return all;
}

Integer index_of(const Domain& domain, Integer value) {
  if (domain.is_range()) return value - domain.bounds().low;
  const Integer* values = Access::values(domain);
  return std::lower_bound(values, values + domain.size(), value) - values;
}

std::string quoted(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "'" : ", '") + name + "'";
  return text;
}

std::string cost_text(double cost) { return fmt::format("{:.6g}", cost); }

/// Returns why a value was not taken, without the value itself: consecutive values with equal reasons share one line.
std::string reason(const Explanation& explanation, const Alternative& alternative) {
  const auto& excluded_by = alternative.excluded_by;
  if (!excluded_by.empty()) {
    return fmt::format("excluded by {}{}", quoted(excluded_by), excluded_by.size() > 1 ? " together" : "");
  }
  if (!explanation.has_cost) return "possible";
  if (alternative.cost == explanation.best->cost()) return "as good";
  return "possible at " + cost_text(alternative.cost);
}

}  // namespace

Explanation Model::explain(Integer most) const {
  penstock::require(most >= 0, "the number of values to explain must not be negative, not {}", most);
  Explanation result;
  result.has_cost = has_cost();
  Search search(store_);
  const auto names = [&](const std::vector<int>& groups) {
    std::vector<std::string> all;
    for (const int group : groups) all.push_back(store_->groups[group]);
    return all;
  };
  result.best = search.best();
  if (!result.best) {
    result.conflict = names(search.conflict());
    return result;
  }
  for (std::size_t x = 0; x < store_->variables.size(); ++x) {
    const NamedDomain& variable = store_->variables[x];
    const Integer chosen = index_of(variable.domain, result.best->values()[x]);
    const std::vector<Integer> others = neighbours(variable.domain, chosen, most);
    result.left_out += variable.domain.size() - 1 - static_cast<Integer>(others.size());
    for (const Integer index : others) {
      search.fix(static_cast<int>(x), index);
      Alternative alternative{variable.name, variable.domain[index], {}, 0};
      if (const auto solution = search.best()) {
        alternative.cost = solution->cost();
      } else {
        alternative.excluded_by = names(search.conflict(kEffort));
      }
      result.alternatives.push_back(std::move(alternative));
    }
  }
  return result;
}

std::string Explanation::text() const {
  if (!best) return fmt::format("no solution: {} cannot hold together\n", quoted(conflict));
  std::string text = best->text() + (has_cost ? ", cost " + cost_text(best->cost()) : "") + "\n";
  for (std::size_t i = 0; i < alternatives.size();) {
    const std::string why = reason(*this, alternatives[i]);
    std::string values;
    const std::string& variable = alternatives[i].variable;
    for (; i < alternatives.size() && alternatives[i].variable == variable && reason(*this, alternatives[i]) == why;
         ++i) {
      values += fmt::format("{}{}", values.empty() ? "" : ", ", alternatives[i].value);
    }
    text += fmt::format("  {} = {}: {}\n", variable, values, why);
  }
  if (left_out > 0) text += fmt::format("  (and {} more values)\n", left_out);
  return text;
}

}  // namespace penstock::csp
