#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

/// Reverse-mode automatic differentiation over scalars. Code over a type S runs with S = double for values, and with S
/// = Var for exact gradients: the oracle needs no backward pass of its own, which could be wrong.
namespace oracle {

class Var;

/// The quantity that a sweep adds up: derivatives, or for each derivative the sum of the absolute values of its terms.
/// There is one term for each path from the node to the output. The latter sum has no cancellation: it bounds how much
/// a derivative changes if each factor changes by a relative error.
enum class Terms { signed_ones, sizes };

/// Records all operations between Vars during its lifetime. One tape at a time per thread. A tape takes over the memory
/// of the one before: to grow to millions of nodes each time took a sixth of the time of a test under sanitizers.
class Tape {
 public:
  Tape() {
    current_ = this;
    nodes_.swap(spare_nodes_), values_.swap(spare_values_), dots_.swap(spare_dots_);
    nodes_.clear(), values_.clear(), dots_.clear();
  }
  ~Tape() {
    current_ = nullptr;
    nodes_.swap(spare_nodes_), values_.swap(spare_values_), dots_.swap(spare_dots_);
  }
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  /// Returns a new variable for which derivatives are computed.
  Var leaf(double value);

  /// Returns d output / d node for all nodes so far, by one backward sweep.
  std::vector<double> sweep(const Var& output, Terms terms = Terms::signed_ones) const;

  static Tape& current() { return *current_; }
  int record(double value, int first, double by_first, int second, double by_second) {
    nodes_.push_back({by_first, by_second, first, second});
    values_.push_back(value);
    return static_cast<int>(nodes_.size()) - 1;
  }

  /// Records a node with the same value and a limited derivative.
  int record_limit(double value, int node, double limit) { return record(value, node, limit, is_limit, 0.0); }

  /// Returns sum_i a_i b_i over `count` nodes starting at `a` and at `b`, as one node. Products and sums would need two
  /// nodes per term.
  Var dot(int a, int b, std::size_t count);

 private:
  struct Node {
    double by_first, by_second;  // partial derivatives
    int first, second;           // operands; negative for a constant
  };
  struct Dot {
    int a, b;  // first node of each operand
    std::size_t count;
  };
  static constexpr int is_dot = -2;    // value of `second` for a dot product; by_second is its index in dots_
  static constexpr int is_limit = -3;  // value of `second` for a limit; by_first is the limit

  std::vector<Node> nodes_;
  std::vector<double> values_;  // values of all nodes
  std::vector<Dot> dots_;
  static thread_local Tape* current_;
  inline static thread_local std::vector<Node> spare_nodes_;
  inline static thread_local std::vector<double> spare_values_;
  inline static thread_local std::vector<Dot> spare_dots_;
};

inline thread_local Tape* Tape::current_ = nullptr;

/// A value and its node on the tape. A plain number is a constant.
class Var {
 public:
  Var(double value = 0.0) : value_(value) {}  // NOLINT(google-explicit-constructor): constants in formulas
  Var(double value, int node) : value_(value), node_(node) {}
  double value() const { return value_; }
  int node() const { return node_; }

 private:
  double value_;
  int node_ = -1;
};

inline double value(double x) { return x; }
inline double value(const Var& x) { return x.value(); }

inline Var unary(const Var& x, double result, double derivative) {
  if (x.node() < 0) return result;
  return {result, Tape::current().record(result, x.node(), derivative, -1, 0.0)};
}

inline Var binary(const Var& a, double by_a, const Var& b, double by_b, double result) {
  if (a.node() < 0 && b.node() < 0) return result;
  return {result, Tape::current().record(result, a.node(), by_a, b.node(), by_b)};
}

inline Var operator+(const Var& a, const Var& b) { return binary(a, 1.0, b, 1.0, a.value() + b.value()); }
inline Var operator-(const Var& a, const Var& b) { return binary(a, 1.0, b, -1.0, a.value() - b.value()); }
inline Var operator*(const Var& a, const Var& b) { return binary(a, b.value(), b, a.value(), a.value() * b.value()); }
inline Var operator/(const Var& a, const Var& b) {
  const double quotient = a.value() / b.value();
  return binary(a, 1.0 / b.value(), b, -quotient / b.value(), quotient);
}
inline Var operator-(const Var& x) { return unary(x, -x.value(), -1.0); }
inline Var& operator+=(Var& a, const Var& b) { return a = a + b; }

inline Var exp(const Var& x) {
  const double result = std::exp(x.value());
  return unary(x, result, result);
}
inline Var log(const Var& x) { return unary(x, std::log(x.value()), 1.0 / x.value()); }
inline Var log1p(const Var& x) { return unary(x, std::log1p(x.value()), 1.0 / (1.0 + x.value())); }
inline Var tanh(const Var& x) {
  const double result = std::tanh(x.value());
  return unary(x, result, 1.0 - result * result);
}

/// Returns x. Its derivative is clamped to -limit .. limit in the backward sweep; 0 means no limit.
template <class S>
const S& limited(const S& x, double) {
  return x;
}
inline Var limited(const Var& x, double limit) {
  if (x.node() < 0 || limit == 0.0) return x;
  return {x.value(), Tape::current().record_limit(x.value(), x.node(), limit)};
}

inline Var Tape::leaf(double value) { return {value, record(value, -1, 0.0, -1, 0.0)}; }

/// Returns sum_i a_i b_i. Several partial sums avoid a chain of dependent additions.
inline double dot(const double* a, const double* b, std::size_t count) {
  constexpr std::size_t lanes = 8;
  double sums[lanes] = {};
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    for (std::size_t k = 0; k < lanes; ++k) sums[k] += a[i + k] * b[i + k];
  }
  for (; i < count; ++i) sums[0] += a[i] * b[i];
  double total = 0.0;
  for (const double sum : sums) total += sum;
  return total;
}

inline Var Tape::dot(int a, int b, std::size_t count) {
  const double value = oracle::dot(&values_[static_cast<std::size_t>(a)], &values_[static_cast<std::size_t>(b)], count);
  dots_.push_back({a, b, count});
  return {value, record(value, -1, 0.0, is_dot, static_cast<double>(dots_.size() - 1))};
}

inline bool is_consecutive(const Var* x, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    if (x[i].node() < 0 || x[i].node() != x[0].node() + static_cast<int>(i)) return false;
  }
  return true;
}

inline Var dot(const Var* a, const Var* b, std::size_t count) {
  if (count > 0 && is_consecutive(a, count) && is_consecutive(b, count)) {
    return Tape::current().dot(a[0].node(), b[0].node(), count);
  }
  Var sum = 0.0;
  for (std::size_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

/// Returns the same values on consecutive nodes: a dot product of them is then a single node.
inline const std::vector<double>& consecutive(const std::vector<double>& values) { return values; }
inline std::vector<Var> consecutive(const std::vector<Var>& values) {
  std::vector<Var> copies;
  copies.reserve(values.size());
  for (const Var& x : values) {
    copies.emplace_back(x.value(), Tape::current().record(x.value(), x.node(), 1.0, -1, 0.0));
  }
  return copies;
}

inline std::vector<double> Tape::sweep(const Var& output, Terms terms) const {
  const auto factor = [&](double partial) { return terms == Terms::sizes ? std::abs(partial) : partial; };
  std::vector<double> adjoint(nodes_.size(), 0.0);
  if (output.node() < 0) return adjoint;
  adjoint[static_cast<std::size_t>(output.node())] = 1.0;
  for (std::size_t i = nodes_.size(); i-- > 0;) {
    const Node& node = nodes_[i];
    if (adjoint[i] == 0.0) continue;
    if (node.second == is_limit) {
      const double most = terms == Terms::sizes ? adjoint[i] : node.by_first;  // absolute values have no limit
      adjoint[static_cast<std::size_t>(node.first)] += std::clamp(adjoint[i], -most, most);
      continue;
    }
    if (node.second == is_dot) {
      const Dot& product = dots_[static_cast<std::size_t>(node.by_second)];
      const double* a = &values_[static_cast<std::size_t>(product.a)];
      const double* b = &values_[static_cast<std::size_t>(product.b)];
      double* da = &adjoint[static_cast<std::size_t>(product.a)];
      double* db = &adjoint[static_cast<std::size_t>(product.b)];
      for (std::size_t k = 0; k < product.count; ++k) da[k] += factor(b[k]) * adjoint[i];
      for (std::size_t k = 0; k < product.count; ++k) db[k] += factor(a[k]) * adjoint[i];
      continue;
    }
    if (node.first >= 0) adjoint[static_cast<std::size_t>(node.first)] += factor(node.by_first) * adjoint[i];
    if (node.second >= 0) adjoint[static_cast<std::size_t>(node.second)] += factor(node.by_second) * adjoint[i];
  }
  return adjoint;
}

}  // namespace oracle
