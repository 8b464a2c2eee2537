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

/// A solver for constraints over integer variables with finite domains. It depends on nothing else of Penstock:
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
/// Arithmetic is exact in 64 bits: a constraint in which a number could leave [-largest, largest], or a divisor could
/// be zero, is refused with Error(invalid_argument) that names it. docs/csp.md has the same in text.
namespace penstock::csp {

using Integer = std::int64_t;

/// What numbers may become, so that the sum of any two fits.
constexpr Integer largest = (Integer{1} << 62) - 1;

/// All integers from low to high.
struct Range {
  Integer low = 0, high = 0;

  bool empty() const { return low > high; }
  bool fixed() const { return low == high; }
  bool contains(Integer value) const { return low <= value && value <= high; }
};

/// The values that a variable may have: a list, or a range of any length.
class Domain {
 public:
  Domain(std::initializer_list<Integer> values);
  /// Sorted, each value once; throws Error(invalid_argument) for an empty list or values beyond `largest`.
  explicit Domain(std::vector<Integer> values);
  explicit Domain(Range range);

  Integer size() const;
  /// In rising order.
  Integer operator[](Integer index) const;
  bool contains(Integer value) const;
  Range bounds() const { return bounds_; }
  /// Whether every integer between the bounds belongs to it.
  bool is_range() const { return values_.empty(); }
  /// "{1, 2, 4}", "1..64"
  std::string text() const;

 private:
  friend struct Access;
  Range bounds_;
  std::vector<Integer> values_;  // empty for a range
};

Domain range(Integer first, Integer last);
/// The positive divisors of n >= 1.
Domain divisors(Integer n);
Domain powers_of_two(Integer first, Integer last);
/// The multiples of step from first to last.
Domain multiples(Integer step, Integer first, Integer last);

struct Store;

/// A number made of variables and constants; cheap to copy, valid as long as the model of its variables.
class Expression {
 public:
  template <std::integral T>
  Expression(T constant) : constant_(checked(constant)) {}  // NOLINT(google-explicit-constructor): `tile * 2`

  /// Its value where it has no variables.
  std::optional<Integer> constant() const;
  /// As the text format writes it.
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

/// A condition on expressions; true or false once all variables have values.
class Constraint {
 public:
  /// As the text format writes it.
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
/// Rounds towards zero, and a % b has the sign of a, as in C++.
Expression operator/(const Expression& a, const Expression& b);
Expression operator%(const Expression& a, const Expression& b);
/// a / b rounded up.
Expression ceil_div(const Expression& a, const Expression& b);
Expression min(const Expression& a, const Expression& b);
Expression max(const Expression& a, const Expression& b);
/// `yes` where the condition holds, otherwise `no`.
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
Constraint implies(const Constraint& condition, const Constraint& consequence);
Constraint one_of(const Expression& a, const Domain& values);
Constraint all_different(const std::vector<Expression>& all);

/// A real number known to lie between two bounds. Arithmetic keeps that: bounds of the operands give bounds of the
/// result, and where the operands are single numbers the result is the one that doubles give.
struct Interval {
  double low = 0, high = 0;

  Interval(double value) : low(value), high(value) {}  // NOLINT(google-explicit-constructor): `time + 3.0`
  Interval(double from, double to) : low(from), high(to) {}
};

Interval operator+(const Interval& a, const Interval& b);
Interval operator-(const Interval& a, const Interval& b);
Interval operator*(const Interval& a, const Interval& b);
/// Everything, if b may be zero.
Interval operator/(const Interval& a, const Interval& b);
Interval min(const Interval& a, const Interval& b);
Interval max(const Interval& a, const Interval& b);

/// What the solver knows of the variables while it searches. Make the expressions that are asked about before, not in
/// the function that asks: each one made takes memory of the model.
class Box {
 public:
  /// The bounds of an expression; a single number once its variables have values.
  Interval operator()(const Expression& a) const;
  Range range(const Expression& a) const;

 private:
  friend struct Access;
  explicit Box(const void* search) : search_(search) {}
  const void* search_;
};

/// A value for every variable. Solutions outlive their model.
class Solution {
 public:
  /// The value of a variable, or of any expression of the model's variables.
  Integer operator[](const Expression& a) const;
  Integer operator[](std::string_view variable) const;
  /// Of all variables in the order of their declaration.
  const std::vector<Integer>& values() const { return values_; }
  /// What was minimised or maximised; 0 without a cost. Integer costs beyond 2^53 are rounded.
  double cost() const { return cost_; }
  /// "warps = 4, tile = 16"
  std::string text() const;

 private:
  friend struct Access;
  Solution(std::shared_ptr<Store> store, std::vector<Integer> values, double cost)
      : store_(std::move(store)), values_(std::move(values)), cost_(cost) {}

  std::shared_ptr<Store> store_;
  std::vector<Integer> values_;
  double cost_;
};

/// What became of one value of one variable that is not in the best solution.
struct Alternative {
  std::string variable;
  Integer value = 0;
  /// Constraints that exclude it together, none of which is known to be superfluous: where that would take more than
  /// some milliseconds to find out, a constraint stays in. Empty if there are solutions with this value.
  std::vector<std::string> excluded_by;
  double cost = 0;  ///< Of the best solution with it.
};

struct Explanation {
  std::optional<Solution> best;
  /// Without a solution: constraints that cannot hold together, of which none can be left out.
  std::vector<std::string> conflict;
  std::vector<Alternative> alternatives;
  Integer left_out = 0;  ///< Values that were not looked at, of long domains.
  bool has_cost = false;

  /// Lines for a person.
  std::string text() const;
};

/// What a question may take. What takes more ends with LimitReached.
struct Limits {
  double seconds = std::numeric_limits<double>::infinity();  ///< From the call of limit() on.
  Integer bytes = largest;                                   ///< Of memory for the search and its solutions, about.
  Integer solutions = largest;                               ///< That all() finds; more are too many, none is left out.
};

/// The message says which limit it was.
class LimitReached : public Error {
 public:
  explicit LimitReached(const std::string& message) : Error(ErrorCode::interrupted, message) {}
};

class Model {
 public:
  Model();
  ~Model();
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;

  /// Throws Error(invalid_argument) if there is a variable of that name.
  Expression var(std::string name, Domain domain);

  /// What a function of the caller's makes of other numbers, such as the bytes of a layout that a compiler lays out
  /// too. It must give the same for the same arguments, of which it may have up to 8, and nothing beyond `bounds`: that
  /// is all that the solver knows of it until they have values. Then, and for the last unknown ones, it calls it.
  Expression call(std::string name, const std::vector<Expression>& arguments,
                  std::function<Integer(std::span<const Integer>)> function, Range bounds);

  /// `name` stands for the constraint in explanations; constraints of one name count as one. Without a name it is
  /// called by its text.
  void require(std::string name, const Constraint& constraint);
  void require(const Constraint& constraint);

  /// What solve() looks for; the last call counts.
  void minimise(const Expression& cost);
  void maximise(const Expression& value);
  /// A real-valued cost, as a function of bounds:
  ///   m.minimise([=](const Box& at) { return max(at(bytes) / 3.3, at(flops) / 700.0) + 3.0; });
  /// The solver asks for its lower bound before all variables have values, and leaves out what cannot be better.
  void minimise(std::function<Interval(const Box&)> cost);
  /// A cost that can only be told of whole solutions, and a lower bound of it if there is one.
  void minimise(std::function<double(const Solution&)> cost, std::function<double(const Box&)> bound = nullptr);

  /// Asked every thousand steps; true ends a search with Error(interrupted).
  void stop_when(std::function<bool()> stop);

  /// Without this call there is no limit.
  void limit(const Limits& limits);

  /// The best solution, or the first one where there is no cost. Of equally good ones the same on every run.
  std::optional<Solution> solve() const;
  std::optional<Solution> first() const;
  /// At most `most` of the best solutions, or any where there is no cost; ordered by cost, then by their values.
  std::vector<Solution> all(Integer most = largest) const;
  /// Calls take(solution) for each solution, in no particular order, until it returns false.
  void for_each(const std::function<bool(const Solution&)>& take) const;

  /// Names of constraints that cannot hold together and of which none can be left out; empty if there is a solution.
  std::vector<std::string> conflict() const;
  /// Solves, and says of other values of each variable (of the `most` nearest ones) what excludes them or what they
  /// would cost.
  Explanation explain(Integer most = 32) const;

  /// Names of the variables, in the order of their declaration.
  std::vector<std::string> variables() const;
  /// The text of the constraints of that name, one after the other.
  std::string constraint_text(std::string_view name) const;
  /// What is minimised or maximised, if that is an expression.
  std::optional<Expression> cost() const;
  bool has_cost() const;

 private:
  friend struct Access;
  std::shared_ptr<Store> store_;
};

/// Reads a problem in the text format of docs/csp.md. Throws Error(bad_input) "line:column: ..." for the first mistake.
Model parse(std::string_view text);

}  // namespace penstock::csp
