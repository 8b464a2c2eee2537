#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "csp/propagation.h"

namespace penstock::csp {

/// Depth-first search for assignments. It branches on the most constrained variable first. Values are tried in
/// ascending order, or with a cost in the order of its lower bound.
class Search {
 public:
  explicit Search(std::shared_ptr<Store> store);

  /// Fixes one variable to a value (an index in its domain) in all following searches. -1 releases it.
  void fix(int x, Integer index);
  void set_active(int group, bool active) { propagation_.set_active(group, active); }

  bool satisfiable();
  /// Returns the best solution, or any solution if there is no cost.
  std::optional<Solution> best();
  /// Returns at most `most` of the best solutions, or any if there is no cost, sorted by cost, then by values.
  std::vector<Solution> best_of(Integer most);
  std::optional<Solution> first();
  /// Calls take() with each solution until it returns false.
  void each(const std::function<bool(Solution)>& take);
  /// Returns a minimal set of groups that cannot hold together with the fixed variable; empty if all can hold. Each
  /// group is tested with at most `effort` steps; a group that would take longer stays in the set.
  std::vector<int> conflict(Integer effort = largest);

  /// Returns the range of an expression for the current domains, for Box.
  Range range(const Expression& a) const;

 private:
  struct Choice {
    Integer low, high;
    double bound;
  };

  bool start();
  bool descend();
  int next_variable() const;
  void add_choices(int x);
  bool try_choice(int x, Choice choice);
  bool shave();
  double lower_bound();
  Solution current() const;
  double cost_of(const Solution& solution) const;
  void count_step();

  std::shared_ptr<Store> store_;
  Propagation propagation_;
  std::function<bool()> found_;  // called with a value for each variable; false ends the search
  std::vector<Choice> choices_;  // of all open levels
  bool guided_ = false;          // true: the cost orders the values
  double limit_ = std::numeric_limits<double>::infinity();  // upper limit of a real cost, exclusive
  Integer integer_limit_ = largest;
  int fixed_ = -1;
  Integer fixed_index_ = 0;
  Integer steps_ = 0, last_step_ = largest;
  bool gave_up_ = false;  // true: the search ended at last_step_
};

}  // namespace penstock::csp
