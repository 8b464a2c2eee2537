#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "csp/arithmetic.h"

/// What a model is made of: expressions as nodes of one list, in which operands stand before what is made of them.
namespace penstock::csp {

struct Node {
  Op op = Op::constant;
  int a = -1, b = -1, c = -1;  ///< Operands; a is the number of a variable.
  Range range = {};            ///< With all variables anywhere in their domains.
  int depth = 0;               ///< Operations one inside the other.
};

struct NamedDomain {
  std::string name;
  Domain domain;
  int node;
};

/// A constraint as it was stated.
struct Statement {
  int group;  ///< Constraints of one name.
  int node;
};

/// A function of the caller's, called where all its arguments are known.
struct Function {
  std::string name;
  std::vector<int> arguments;  // nodes
  std::function<Integer(std::span<const Integer>)> call;
  Range bounds;

  /// `value_of(node)` is the value of an argument.
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
  /// Nodes that 64 bits may not hold or whose divisor may be zero, and what to say of them once they are used.
  std::map<int, std::string> faults;

  /// Of the three kinds of costs at most one is there. An integer cost is always minimised: a value to be maximised is
  /// stored as its negative, and the value itself beside that.
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
  /// The node of an operation; operands are other nodes, -1 where there are fewer than three.
  int add(Op op, int a, int b = -1, int c = -1);
  /// The node of a call of the function added last.
  int add_call();
  /// All nodes that a node is made of, itself last.
  std::vector<int> parts_of(int node) const;
  /// Throws Error(invalid_argument) if a part of the node has a fault; `subject` is "constraint 'x'".
  void check(int node, const std::string& subject) const;
  std::string text(int node) const;
  /// Of the node with variables at these values.
  Integer value(int node, const std::vector<Integer>& values) const;
};

/// Throws Error(invalid_argument) for an expression of another model than the one at hand.
[[noreturn]] void refuse_foreign(const Expression& a);

/// The way from public handles to what is behind them.
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
  /// Null for a range.
  static const Integer* values(const Domain& domain) { return domain.is_range() ? nullptr : domain.values_.data(); }
  static Box box(const void* search) { return Box(search); }

  /// Its node in `store`; throws Error(invalid_argument) for an expression of another model.
  static int node_in(Store& store, const Expression& a);
};

}  // namespace penstock::csp
