#pragma once

#include <vector>

#include "csp/domains.h"

namespace penstock::csp {

/// All constraints of a model over one state of its variables. Bounds go through an expression up to its root and back
/// down to its variables; where few assignments are left each is tried, which also makes holes in domains.
class Propagation {
 public:
  explicit Propagation(const Store& store);

  /// All values alive again, and every active constraint waiting.
  void reset();
  /// Constraints that are not active do nothing; of effect from the next reset() on.
  void set_active(int group, bool active) { active_[group] = active; }
  bool is_active(int group) const { return active_[group]; }
  /// Whether a constraint of the group has changed anything, or could not hold, since the last reset().
  bool was_used(int group) const { return used_[group]; }
  /// Number of variables in the constraints of a group.
  int width(int group) const;

  /// Costs must not be higher than this.
  void limit_cost(Integer limit);

  /// Of a variable: keeps the values between two indices, both alive, and wakes its constraints.
  bool cut(int x, Integer low, Integer high);
  /// Until nothing changes; false if some constraint cannot hold.
  bool run();
  /// Without waking anything: to look at bounds and go back.
  Domains& domains() { return domains_; }
  const Domains& domains() const { return domains_; }

  /// To be called every thousand steps; run() does so itself. Throws LimitReached for too much time or memory, of which
  /// `kept` bytes are of others.
  void check_limits() const;
  void keep(std::size_t kept) { kept_ = kept; }

  /// Grows with each constraint of the variable that could not hold.
  double weight(int x) const { return weights_[x]; }

  /// Bounds of any node of the store with the variables as they are now.
  Range range(int node) const;
  /// To be called when variables have changed, before range().
  void look_again() const { ++now_; }

 private:
  struct Constraint {
    std::size_t parts_begin, parts_end;          // in parts_
    std::size_t variables_begin, variables_end;  // in variables_
    int root;
    int group;
    Range target;
  };

  void add(int node, int group, Range target);
  void wake(int x);
  bool revise(const Constraint& constraint);
  template <class RangeOf>
  Range call_range(const Node& node, const RangeOf& argument_range) const;
  void climb(const Constraint& constraint);
  bool descend(const Constraint& constraint);
  bool try_values(const Constraint& constraint);
  bool try_pairs(const Constraint& constraint, int x, int y);
  bool holds(const Constraint& constraint);

  const Store& store_;
  Domains domains_;
  std::vector<Constraint> constraints_;
  std::vector<int> parts_, variables_;
  std::vector<std::vector<int>> of_variable_;  // constraints
  std::vector<bool> active_, used_;            // by group
  int cost_constraint_ = -1;

  std::size_t kept_ = 0;
  std::vector<int> queue_;
  std::vector<bool> waiting_;
  std::vector<double> weights_;

  // Of the constraint at hand, by node.
  std::vector<Range> ranges_;
  std::vector<Integer> values_;
  std::vector<int> open_;  // operations whose value is not known yet
  std::vector<char> supported_;

  mutable std::vector<Range> seen_;
  mutable std::vector<unsigned> seen_at_;
  mutable unsigned now_ = 1;
};

}  // namespace penstock::csp
