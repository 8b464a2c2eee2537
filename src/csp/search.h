#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "csp/propagation.h"

namespace penstock::csp {

/// Finds assignments: depth first, the most constrained variable first, values in rising order or, where there is a
/// cost, in that of its lower bound.
class Search {
 public:
  explicit Search(std::shared_ptr<Store> store);

  /// For all that is asked from here on: one variable has this value (an index in its domain). No value: -1.
  void fix(int x, Integer index);
  void set_active(int group, bool active) { propagation_.set_active(group, active); }

  bool satisfiable();
  /// The best solution, or any one if there is no cost.
  std::optional<Solution> best();
  /// At most `most` of the best ones, or any if there is no cost; sorted by cost, then by their values.
  std::vector<Solution> best_of(Integer most);
  std::optional<Solution> first();
  /// Until take() returns false.
  void each(const std::function<bool(Solution)>& take);
  /// Groups that cannot hold together with what is fixed, none of which can be left out; none if all can hold.
  /// With a limit of `effort` steps for finding out about each, those that would take longer are kept.
  std::vector<int> conflict(Integer effort = largest);

  /// Of the variables as they are now, for Box.
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
  bool guided_ = false;          // by the cost
  double limit_ = std::numeric_limits<double>::infinity();  // of a real cost: only what is lower counts
  Integer integer_limit_ = largest;
  int fixed_ = -1;
  Integer fixed_index_ = 0;
  Integer steps_ = 0, last_step_ = largest;
  bool gave_up_ = false;  // at the last step
};

}  // namespace penstock::csp
