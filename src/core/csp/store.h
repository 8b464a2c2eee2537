#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "csp/arithmetic.h"

/// The data of a model. Expressions are nodes of one list, in which operands precede the operations that use them.
namespace penstock::csp {

struct Node {
  Op op = Op::constant;
  int a = -1, b = -1, c = -1;  ///< Operands. For a variable, a is its number.
  Range range = {};            ///< Range for the full domains of all variables.
  int depth = 0;               ///< Depth of nested operations.
};

struct NamedDomain {
  std::string name;
  Domain domain;
  int node;
};

/// A constraint as stated by the caller.
struct Statement {
  int group;  ///< Number of its name; constraints of one name form a group.
  int node;
};

/// A function of the caller. It is called once all its arguments are known.
struct Function {
  std::string name;
  std::vector<int> arguments;  // nodes
  std::function<Integer(std::span<const Integer>)> call;
  Range bounds;

  /// Returns the result of the call. `value_of(node)` returns the value of an argument.
  template <class ValueOf>
  Integer operator()(const ValueOf& value_of) const {
    std::array<Integer, 8> values;
    for (std::size_t i = 0; i < arguments.size(); ++i) values[i] = value_of(arguments[i]);
    const Integer result = call(std::span(values).first(arguments.size()));
    if (!bounds.contains(result)) refuse(result);
    return result;
  }
  static constexpr std::size_t most_arguments = 8;

 private:
  [[noreturn]] void refuse(Integer result) const;
};

struct Store {
  std::vector<Node> nodes;
  std::vector<Function> functions;
  std::vector<NamedDomain> variables;
  std::unordered_map<std::string, int> variable_numbers;
  std::vector<Statement> statements;
  std::vector<std::string> groups;
  std::unordered_map<std::string, int> group_numbers;
  /// Nodes that may overflow 64 bits or divide by zero, with the error message for their use.
  std::map<int, std::string> faults;

  /// At most one of the three kinds of costs is set. An integer cost is always minimised. For a maximised value, `cost`
  /// is its negative and `maximised` the value itself.
  int cost = -1;
  int maximised = -1;
  std::function<Interval(const Box&)> interval_cost;
  std::function<double(const Solution&)> solution_cost;
  std::function<double(const Box&)> bound;

  std::function<bool()> stop;
  Limits limits;
  std::chrono::steady_clock::time_point limited_at;

  bool has_cost() const { return cost >= 0 || interval_cost || solution_cost; }

  int add_constant(Integer value);
  /// Adds an operation and returns its node. Operands are other nodes; missing ones are -1.
  int add(Op op, int a, int b = -1, int c = -1);
  /// Adds a call of the last function and returns its node.
  int add_call();
  /// Returns all nodes that a node depends on, and last the node itself.
  std::vector<int> parts_of(int node) const;
  /// Throws Error(invalid_argument) if a part of the node has a fault. `subject` names it, such as "constraint 'x'".
  void check(int node, const std::string& subject) const;
  std::string text(int node) const;
  /// Returns the value of a node for these values of the variables.
  Integer value(int node, const std::vector<Integer>& values) const;
};

/// Throws Error(invalid_argument): the expression belongs to another model.
[[noreturn]] void refuse_foreign(const Expression& a);

/// Access to the private members of public handles.
struct Access {
  static Store* store(const Expression& a) { return a.store_; }
  static int node(const Expression& a) { return a.node_; }
  static Integer constant(const Expression& a) { return a.constant_; }
  static Expression expression(Store* store, int node) { return {store, node}; }
  static const Expression& condition(const Constraint& a) { return a.condition_; }
  static Constraint constraint(const Expression& condition) { return Constraint(condition); }
  static const Store& store(const Model& model) { return *model.store_; }
  static const std::shared_ptr<Store>& shared(const Model& model) { return model.store_; }
  static Solution solution(std::shared_ptr<Store> store, std::vector<Integer> values, double cost) {
    return {std::move(store), std::move(values), cost};
  }
  /// Returns the values of a domain; null for a range.
  static const Integer* values(const Domain& domain) { return domain.is_range() ? nullptr : domain.values_.data(); }
  static Box box(const void* search) { return Box(search); }

  /// Returns the node of an expression in `store`. Throws Error(invalid_argument) for an expression of another model.
  static int node_in(Store& store, const Expression& a);
};

}  // namespace penstock::csp
