#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "penstock/error.h"

/// A constraint solver over integer variables with finite domains. It uses nothing else of Penstock, except error.h:
///
///     csp::Model m;
///     const auto warps = m.var("warps", {1, 2, 4, 8});
///     const auto tile = m.var("tile", csp::divisors(768));
///     m.require("shared memory fits", tile * 768 * 2 <= 232448);
///     m.require("tiles cover the units", tile * warps >= 64);
///     m.minimise(csp::ceil_div(768, tile) * 3 + warps);
///     if (const auto best = m.solve()) use((*best)[tile]);
///     std::puts(m.explain().text().c_str());
///
/// Arithmetic is exact in 64 bits. A constraint in which a number could leave [-largest, largest], or a divisor could
/// be zero, throws Error(invalid_argument) that names it. docs/csp.md describes the text format of the same problems.
namespace penstock::csp {

using Integer = std::int64_t;

/// Largest magnitude of all numbers; the sum of any two fits into 64 bits.
constexpr Integer largest = (Integer{1} << 62) - 1;

/// All integers from low to high, both included.
struct Range {
  Integer low = 0, high = 0;

  /// Returns whether there is no integer in the range.
  bool empty() const { return low > high; }
  /// Returns whether there is exactly one integer in the range.
  bool fixed() const { return low == high; }
  bool contains(Integer value) const { return low <= value && value <= high; }
};

/// The set of values that a variable may have: a list, or a range of any length.
class Domain {
 public:
  Domain(std::initializer_list<Integer> values);
  /// Sorts the values and removes duplicates. Throws Error(invalid_argument) for an empty list or values beyond
  /// `largest`.
  explicit Domain(std::vector<Integer> values);
  explicit Domain(Range range);

  /// Returns the number of values.
  Integer size() const;
  /// Returns a value by its index in ascending order.
  Integer operator[](Integer index) const;
  bool contains(Integer value) const;
  Range bounds() const { return bounds_; }
  /// Returns whether every integer between the bounds is in the domain.
  bool is_range() const { return values_.empty(); }
  /// Returns the domain as text: "{1, 2, 4}", "1..64".
  std::string text() const;

 private:
  friend struct Access;
  Range bounds_;
  std::vector<Integer> values_;  // empty for a range
};

/// Returns all integers from first to last.
Domain range(Integer first, Integer last);
/// Returns the positive divisors of n, which must be 1 to 2^40.
Domain divisors(Integer n);
/// Returns the powers of two from first to last. Throws Error(invalid_argument) if there is none.
Domain powers_of_two(Integer first, Integer last);
/// Returns the multiples of step from first to last. Throws Error(invalid_argument) if there is none.
Domain multiples(Integer step, Integer first, Integer last);

struct Store;

/// An integer expression of variables and constants. Cheap to copy; valid as long as the model of its variables lives.
class Expression {
 public:
  template <std::integral T>
  Expression(T constant) : constant_(checked(constant)) {}  // NOLINT(google-explicit-constructor): `tile * 2`

  /// Returns the value of an expression without variables; otherwise empty.
  std::optional<Integer> constant() const;
  /// Returns bounds of all values that the expression can have.
  Range bounds() const;
  /// Returns the expression in the text format.
  std::string text() const;

 private:
  friend struct Access;
  Expression(Store* store, int node) : store_(store), node_(node) {}
  template <std::integral T>
  static Integer checked(T constant) {
    if (!std::in_range<Integer>(constant)) throw Error(ErrorCode::invalid_argument, "a constant beyond 64 bits");
    return static_cast<Integer>(constant);
  }

  Store* store_ = nullptr;  // null: a constant
  int node_ = -1;
  Integer constant_ = 0;
};

/// A condition on expressions. It is true or false once all variables have values.
class Constraint {
 public:
  /// Returns the condition in the text format.
  std::string text() const;

 private:
  friend struct Access;
  explicit Constraint(Expression condition) : condition_(condition) {}
  Expression condition_;  // 0 or 1
};

Expression operator+(const Expression& a, const Expression& b);
Expression operator-(const Expression& a, const Expression& b);
Expression operator-(const Expression& a);
Expression operator*(const Expression& a, const Expression& b);
/// Division rounds towards zero, and a % b has the sign of a, as in C++.
Expression operator/(const Expression& a, const Expression& b);
Expression operator%(const Expression& a, const Expression& b);
/// Returns a / b, rounded up.
Expression ceil_div(const Expression& a, const Expression& b);
Expression min(const Expression& a, const Expression& b);
Expression max(const Expression& a, const Expression& b);
/// Returns `yes` if the condition holds, otherwise `no`.
Expression select(const Constraint& condition, const Expression& yes, const Expression& no);

Constraint operator==(const Expression& a, const Expression& b);
Constraint operator!=(const Expression& a, const Expression& b);
Constraint operator<=(const Expression& a, const Expression& b);
Constraint operator<(const Expression& a, const Expression& b);
Constraint operator>=(const Expression& a, const Expression& b);
Constraint operator>(const Expression& a, const Expression& b);
Constraint operator&&(const Constraint& a, const Constraint& b);
Constraint operator||(const Constraint& a, const Constraint& b);
Constraint operator!(const Constraint& a);
/// Returns !condition || consequence.
Constraint implies(const Constraint& condition, const Constraint& consequence);
/// Returns whether `a` is in the domain.
Constraint one_of(const Expression& a, const Domain& values);
/// Returns whether no two expressions have the same value.
Constraint all_different(const std::vector<Expression>& all);

/// Bounds of a real number. Arithmetic on intervals returns bounds of the result. If the operands are single numbers,
/// the result is that of double arithmetic.
struct Interval {
  double low = 0, high = 0;

  Interval(double value) : low(value), high(value) {}  // NOLINT(google-explicit-constructor): `time + 3.0`
  Interval(double from, double to) : low(from), high(to) {}
};

Interval operator+(const Interval& a, const Interval& b);
Interval operator-(const Interval& a, const Interval& b);
Interval operator*(const Interval& a, const Interval& b);
/// Returns all real numbers if b may be zero.
Interval operator/(const Interval& a, const Interval& b);
Interval min(const Interval& a, const Interval& b);
Interval max(const Interval& a, const Interval& b);

/// Current bounds of all variables during a search. Build expressions before the search, not in a function that takes a
/// Box: each new expression takes memory of the model.
class Box {
 public:
  /// Returns the bounds of an expression; a single number once its variables have values.
  Interval operator()(const Expression& a) const;
  /// Returns the same bounds as integers.
  Range range(const Expression& a) const;

 private:
  friend struct Access;
  explicit Box(const void* search) : search_(search) {}
  const void* search_;
};

/// A value for every variable. A solution may outlive its model.
class Solution {
 public:
  /// Returns the value of a variable, or of any expression of the model's variables.
  Integer operator[](const Expression& a) const;
  /// Returns the value of a variable by name.
  Integer operator[](std::string_view variable) const;
  /// Returns the values of all variables in the order of their declaration.
  const std::vector<Integer>& values() const { return values_; }
  /// Returns the value of what was minimised or maximised; 0 without a cost. Integers beyond 2^53 are rounded.
  double cost() const { return cost_; }
  /// Returns the solution as text: "warps = 4, tile = 16".
  std::string text() const;

 private:
  friend struct Access;
  Solution(std::shared_ptr<Store> store, std::vector<Integer> values, double cost)
      : store_(std::move(store)), values_(std::move(values)), cost_(cost) {}

  std::shared_ptr<Store> store_;
  std::vector<Integer> values_;
  double cost_;
};

/// A value of a variable that the best solution does not have, and why.
struct Alternative {
  std::string variable;
  Integer value = 0;
  /// Names of constraints that together exclude the value; empty if there are solutions with it. The set is minimal,
  /// except for constraints whose test would take more than some milliseconds.
  std::vector<std::string> excluded_by;
  double cost = 0;  ///< Cost of the best solution with this value.
};

/// Result of Model::explain().
struct Explanation {
  std::optional<Solution> best;  ///< Empty: there is no solution.
  /// Without a solution: names of a minimal set of constraints that cannot hold together.
  std::vector<std::string> conflict;
  std::vector<Alternative> alternatives;
  Integer left_out = 0;   ///< Number of values of long domains that were not examined.
  bool has_cost = false;  ///< True if the model has a cost.

  /// Returns the explanation as text for a person.
  std::string text() const;
};

/// Limits of all searches of a model. A search that exceeds one throws LimitReached.
struct Limits {
  double seconds = std::numeric_limits<double>::infinity();  ///< Seconds, from the call of limit() on.
  Integer bytes = largest;      ///< Approximate bytes of memory for the search and its solutions.
  Integer solutions = largest;  ///< Number of solutions that all() may find; with more it throws and returns none.
};

/// A search exceeded one of its Limits; the message says which one. Its code is ErrorCode::interrupted.
class LimitReached : public Error {
 public:
  explicit LimitReached(const std::string& message) : Error(ErrorCode::interrupted, message) {}
};

/// A problem: variables, constraints and a cost.
class Model {
 public:
  Model();
  ~Model();
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;

  /// Adds a variable. Throws Error(invalid_argument) if there is a variable with that name.
  Expression var(std::string name, Domain domain);

  /// Returns an expression for the result of a C++ function, such as the bytes of a memory layout.
  ///
  /// The function has up to 8 arguments. It must return the same result for the same arguments, within `bounds`. Until
  /// its arguments have values, the solver knows only these bounds.
  Expression call(std::string name, const std::vector<Expression>& arguments,
                  std::function<Integer(std::span<const Integer>)> function, Range bounds);

  /// Adds a constraint. Explanations show its name; constraints with the same name count as one.
  void require(std::string name, const Constraint& constraint);
  /// Adds a constraint that is named by its text.
  void require(const Constraint& constraint);

  /// Sets the cost that solve() minimises. The last call of minimise() or maximise() counts.
  void minimise(const Expression& cost);
  /// Sets the value that solve() maximises.
  void maximise(const Expression& value);
  /// Sets a real-valued cost, as a function of bounds:
  ///   m.minimise([=](const Box& at) { return max(at(bytes) / 3.3, at(flops) / 700.0) + 3.0; });
  /// The solver calls it before all variables have values and skips what its lower bound rules out.
  void minimise(std::function<Interval(const Box&)> cost);
  /// Sets a cost that is known only for whole solutions, with an optional lower bound for partial ones.
  void minimise(std::function<double(const Solution&)> cost, std::function<double(const Box&)> bound = nullptr);

  /// Sets a function that is called every thousand steps of a search. If it returns true, the search throws
  /// Error(interrupted).
  void stop_when(std::function<bool()> stop);

  /// Sets the limits of searches. The default is no limit.
  void limit(const Limits& limits);

  /// Returns the best solution, or any if there is no cost; empty if there is none. Every run returns the same one of
  /// several best solutions.
  std::optional<Solution> solve() const;
  /// Returns any solution, whatever its cost; empty if there is none.
  std::optional<Solution> first() const;
  /// Returns at most `most` of the best solutions, or any if there is no cost, ordered by cost, then by values.
  std::vector<Solution> all(Integer most = largest) const;
  /// Calls `take` for each solution, in unspecified order, until it returns false.
  void for_each(const std::function<bool(const Solution&)>& take) const;

  /// Returns the names of a minimal set of constraints that cannot hold together; empty if there is a solution.
  std::vector<std::string> conflict() const;
  /// Solves the problem. For each variable and each of its `most` nearest other values, finds what excludes the value
  /// or what it would cost.
  Explanation explain(Integer most = 32) const;

  /// Returns the names of the variables in the order of their declaration.
  std::vector<std::string> variables() const;
  /// Returns a variable by name; empty if there is none.
  std::optional<Expression> variable(std::string_view name) const;
  /// Returns the texts of the constraints of that name in sequence.
  std::string constraint_text(std::string_view name) const;
  /// Returns what is minimised or maximised, if that is an expression.
  std::optional<Expression> cost() const;
  /// Returns whether the model has a cost.
  bool has_cost() const;

 private:
  friend struct Access;
  std::shared_ptr<Store> store_;
};

/// Reads a problem in the text format of docs/csp.md. Throws Error(bad_input) for the first mistake: "line:column:
/// ...".
Model parse(std::string_view text);

}  // namespace penstock::csp
