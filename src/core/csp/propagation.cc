#include "csp/propagation.h"

#include <algorithm>
#include <chrono>

#include "base/check.h"

namespace penstock::csp {
namespace {

/// Up to this many pairs of values are tried one by one.
constexpr Integer most_pairs = 64;
/// The group of the bound on the cost, which is always active.
constexpr int no_group = -1;

}  // namespace

Propagation::Propagation(const Store& store)
    : store_(store),
      of_variable_(store.variables.size()),
      active_(store.groups.size(), true),
      used_(store.groups.size()),
      weights_(store.variables.size(), 1.0),
      ranges_(store.nodes.size()),
      values_(store.nodes.size()) {
  for (const Statement& statement : store.statements) add(statement.node, statement.group, {1, 1});
  if (store.cost >= 0) {
    cost_constraint_ = static_cast<int>(constraints_.size());
    add(store.cost, no_group, {-largest, largest});
  }
  waiting_.resize(constraints_.size());
}

void Propagation::add(int node, int group, Range target) {
  // All parts must hold. As separate constraints they are queued less often and tried earlier.
  if (store_.nodes[node].op == Op::conjunction) {
    add(store_.nodes[node].a, group, target);
    return add(store_.nodes[node].b, group, target);
  }
  const std::vector<int> parts = store_.parts_of(node);
  Constraint constraint{parts_.size(), 0, variables_.size(), 0, node, group, target};
  parts_.insert(parts_.end(), parts.begin(), parts.end());
  for (const int part : parts) {
    if (store_.nodes[part].op != Op::variable) continue;
    variables_.push_back(store_.nodes[part].a);
    of_variable_[store_.nodes[part].a].push_back(static_cast<int>(constraints_.size()));
  }
  constraint.parts_end = parts_.size();
  constraint.variables_end = variables_.size();
  constraints_.push_back(constraint);
}

int Propagation::width(int group) const {
  std::size_t width = 0;
  for (const Constraint& constraint : constraints_) {
    if (constraint.group == group) width += constraint.variables_end - constraint.variables_begin;
  }
  return static_cast<int>(width);
}

void Propagation::reset() {
  domains_.reset(store_.variables);
  if (cost_constraint_ >= 0) constraints_[cost_constraint_].target.high = largest;
  queue_.clear();
  std::fill(waiting_.begin(), waiting_.end(), false);
  std::fill(used_.begin(), used_.end(), false);
  for (std::size_t i = 0; i < constraints_.size(); ++i) {
    const int group = constraints_[i].group;
    if (group != no_group && !active_[group]) continue;
    waiting_[i] = true;
    queue_.push_back(static_cast<int>(i));
  }
}

void Propagation::limit_cost(Integer limit) {
  if (cost_constraint_ < 0) return;
  constraints_[cost_constraint_].target.high = limit;
  if (!waiting_[cost_constraint_]) queue_.push_back(cost_constraint_);
  waiting_[cost_constraint_] = true;
}

void Propagation::wake(int x) {
  for (const int i : of_variable_[x]) {
    const int group = constraints_[i].group;
    if (waiting_[i] || (group != no_group && !active_[group])) continue;
    waiting_[i] = true;
    queue_.push_back(i);
  }
}

bool Propagation::cut(int x, Integer low, Integer high) {
  if (!domains_.cut(x, low, high)) return false;
  wake(x);
  return true;
}

void Propagation::check_limits() const {
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - store_.limited_at).count();
  if (seconds > store_.limits.seconds) {
    throw LimitReached(
        fmt::format("no answer within {:g} s: allow more time, or smaller domains", store_.limits.seconds));
  }
  const auto bytes = static_cast<Integer>(kept_ + domains_.bytes() + queue_.capacity() * sizeof(int));
  if (bytes > store_.limits.bytes) {
    throw LimitReached(
        fmt::format("no answer within {} bytes of memory: allow more, or smaller domains", store_.limits.bytes));
  }
}

bool Propagation::run() {
  constexpr std::size_t between_checks = 1024;
  for (std::size_t done = 0; done < queue_.size(); ++done) {
    // With huge domains, bounds may move by one at a time, for hours.
    if (done == between_checks) {
      if (store_.stop && store_.stop()) fail(ErrorCode::interrupted, "stopped while bounds were being found");
      check_limits();
      queue_.erase(queue_.begin(), queue_.begin() + static_cast<std::ptrdiff_t>(done));
      done = 0;
    }
    const int i = queue_[done];
    waiting_[i] = false;
    const Constraint& constraint = constraints_[i];
    const std::size_t before = domains_.mark();
    const bool possible = revise(constraint);
    const bool useful = !possible || domains_.mark() != before;
    if (useful && constraint.group != no_group) used_[constraint.group] = true;
    if (possible) continue;
    for (std::size_t v = constraint.variables_begin; v < constraint.variables_end; ++v) weights_[variables_[v]] += 1.0;
    for (std::size_t rest = done; rest < queue_.size(); ++rest) waiting_[queue_[rest]] = false;
    queue_.clear();
    return false;
  }
  queue_.clear();
  return true;
}

bool Propagation::revise(const Constraint& constraint) {
  climb(constraint);
  Range& root = ranges_[constraint.root];
  if (root.low >= constraint.target.low && root.high <= constraint.target.high) return true;  // always holds
  narrow(root, constraint.target);
  if (root.empty() || !descend(constraint)) return false;
  return try_values(constraint);
}

/// Returns the value of a call if all arguments are known, otherwise its declared bounds.
template <class RangeOf>
Range Propagation::call_range(const Node& node, const RangeOf& argument_range) const {
  const Function& function = store_.functions[node.a];
  for (const int argument : function.arguments) {
    if (!argument_range(argument).fixed()) return function.bounds;
  }
  const Integer value = function([&](int argument) { return argument_range(argument).low; });
  return {value, value};
}

/// Computes the ranges of all parts from those of the variables.
void Propagation::climb(const Constraint& constraint) {
  open_.clear();
  for (std::size_t i = constraint.parts_begin; i < constraint.parts_end; ++i) {
    const int id = parts_[i];
    const Node& node = store_.nodes[id];
    Range& range = ranges_[id];
    if (node.op == Op::constant) {
      range = node.range;
    } else if (node.op == Op::variable) {
      range = domains_.range(node.a);
    } else if (node.op == Op::call) {
      range = call_range(node, [&](int argument) { return ranges_[argument]; });
      if (!range.fixed()) open_.push_back(id);
    } else {
      range = range_of(node.op, ranges_[node.a], node.b < 0 ? Range{} : ranges_[node.b],
                       node.c < 0 ? Range{} : ranges_[node.c]);
      if (!range.fixed()) open_.push_back(id);
    }
    values_[id] = range.low;
  }
}

/// Narrows the ranges of the variables from that of the root.
bool Propagation::descend(const Constraint& constraint) {
  Range none;
  for (std::size_t i = constraint.parts_end; i-- > constraint.parts_begin;) {
    const int id = parts_[i];
    const Node& node = store_.nodes[id];
    const Range range = ranges_[id];
    if (range.empty()) return false;
    if (node.op == Op::constant || node.op == Op::call) continue;
    if (node.op != Op::variable) {
      narrow_operands(node.op, range, ranges_[node.a], node.b < 0 ? none : ranges_[node.b],
                      node.c < 0 ? none : ranges_[node.c]);
      continue;
    }
    const Range before = domains_.range(node.a);
    if (range.low <= before.low && range.high >= before.high) continue;
    if (!domains_.narrow(node.a, range)) return false;
    wake(node.a);
  }
  return true;
}

bool Propagation::holds(const Constraint& constraint) {
  for (const int id : open_) {
    const Node& node = store_.nodes[id];
    if (node.op == Op::call) {
      values_[id] = store_.functions[node.a]([&](int argument) { return values_[argument]; });
      continue;
    }
    values_[id] =
        value_of(node.op, values_[node.a], node.b < 0 ? 0 : values_[node.b], node.c < 0 ? 0 : values_[node.c]);
  }
  return constraint.target.contains(values_[constraint.root]);
}

/// Tries each value if one variable is open, and each pair of values if two are open and there are few pairs.
bool Propagation::try_values(const Constraint& constraint) {
  int unknown[2] = {-1, -1};
  int count = 0;
  for (std::size_t i = constraint.variables_begin; i < constraint.variables_end; ++i) {
    const int x = variables_[i];
    values_[store_.variables[x].node] = domains_.range(x).low;
    if (domains_.fixed(x)) continue;
    if (count == 2) return true;
    unknown[count++] = x;
  }
  // Ranges of fixed variables are exact, but the variables may have become fixed only now.
  if (count == 0) return holds(constraint);
  if (!tries_values) return true;
  const int x = unknown[0];
  if (!domains_.has_bits(x)) return true;
  if (count == 2) return try_pairs(constraint, x, unknown[1]);
  Integer& value = values_[store_.variables[x].node];
  bool removed = false;
  for (Integer i = domains_.first(x), last = domains_.last(x); i <= last; ++i) {
    if (!domains_.alive(x, i)) continue;
    value = domains_.value(x, i);
    if (holds(constraint)) continue;
    if (!domains_.remove(x, i)) return false;
    removed = true;
  }
  if (removed) wake(x);
  return true;
}

bool Propagation::try_pairs(const Constraint& constraint, int x, int y) {
  if (!domains_.has_bits(y) || domains_.size(x) * domains_.size(y) > most_pairs) return true;
  const Integer x_first = domains_.first(x), x_last = domains_.last(x);
  const Integer y_first = domains_.first(y), y_last = domains_.last(y);
  Integer &x_value = values_[store_.variables[x].node], &y_value = values_[store_.variables[y].node];
  supported_.assign(static_cast<std::size_t>(y_last - y_first + 1), 0);
  bool x_removed = false, y_removed = false;
  for (Integer i = x_first; i <= x_last; ++i) {
    if (!domains_.alive(x, i)) continue;
    x_value = domains_.value(x, i);
    bool any = false;
    for (Integer j = y_first; j <= y_last; ++j) {
      if (!domains_.alive(y, j) || (any && supported_[j - y_first] != 0)) continue;
      y_value = domains_.value(y, j);
      if (!holds(constraint)) continue;
      any = true;
      supported_[j - y_first] = 1;
    }
    if (any) continue;
    if (!domains_.remove(x, i)) return false;
    x_removed = true;
  }
  for (Integer j = y_first; j <= y_last; ++j) {
    if (supported_[j - y_first] != 0 || !domains_.alive(y, j)) continue;
    if (!domains_.remove(y, j)) return false;
    y_removed = true;
  }
  if (x_removed) wake(x);
  if (y_removed) wake(y);
  return true;
}

Range Propagation::range(int node) const {
  if (static_cast<std::size_t>(node) >= seen_.size()) {
    seen_.resize(store_.nodes.size());
    seen_at_.resize(store_.nodes.size());
  }
  if (seen_at_[node] == now_) return seen_[node];
  const Node& part = store_.nodes[node];
  Range result = part.range;
  if (part.op == Op::variable) {
    result = domains_.range(part.a);
  } else if (part.op == Op::call) {
    result = call_range(part, [&](int argument) { return range(argument); });
  } else if (part.op != Op::constant) {
    const Range a = range(part.a), b = part.b < 0 ? Range{} : range(part.b), c = part.c < 0 ? Range{} : range(part.c);
    result = range_of(part.op, a, b, c);
  }
  seen_[node] = result;
  seen_at_[node] = now_;
  return result;
}

}  // namespace penstock::csp
