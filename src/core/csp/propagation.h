#pragma once

#include <vector>

#include "csp/domains.h"

namespace penstock::csp {

/// Whether constraints with one or two open variables try their values. False only to measure what that gains.
inline bool tries_values = true;

/// Propagates all constraints of a model over one state of its variables. Bounds are propagated through an expression
/// up to its root and back down to its variables. If few assignments are left, each one is tried, which also makes
/// holes in domains.
class Propagation {
 public:
  explicit Propagation(const Store& store);

  /// Restores all values and queues all active constraints.
  void reset();
  /// Activates or deactivates the constraints of a group, from the next reset() on. Inactive ones do nothing.
  void set_active(int group, bool active) { active_[group] = active; }
  bool is_active(int group) const { return active_[group]; }
  /// Returns whether a constraint of the group has removed values, or was violated, since the last reset().
  bool was_used(int group) const { return used_[group]; }
  /// Returns the number of variables in the constraints of a group.
  int width(int group) const;

  /// Limits the cost to at most this.
  void limit_cost(Integer limit);

  /// Keeps the values of a variable between two alive indices, and queues its constraints.
  bool cut(int x, Integer low, Integer high);
  /// Propagates until nothing changes. Returns false if a constraint cannot hold.
  bool run();
  /// Returns the domains, for changes that queue no constraints, such as trying bounds and undoing.
  Domains& domains() { return domains_; }
  const Domains& domains() const { return domains_; }

  /// Throws LimitReached if the search took too much time or memory, including the bytes of keep(). Call it every
  /// thousand steps; run() does so itself.
  void check_limits() const;
  void keep(std::size_t kept) { kept_ = kept; }

  /// Returns a weight that grows with each violated constraint of the variable.
  double weight(int x) const { return weights_[x]; }

  /// Returns bounds of any node of the store for the current domains.
  Range range(int node) const;
  /// Must be called after variables have changed, before range().
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

  // For the current constraint, indexed by node.
  std::vector<Range> ranges_;
  std::vector<Integer> values_;
  std::vector<int> open_;  // operations without a known value
  std::vector<char> supported_;

  mutable std::vector<Range> seen_;
  mutable std::vector<unsigned> seen_at_;
  mutable unsigned now_ = 1;
};

}  // namespace penstock::csp
