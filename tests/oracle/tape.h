#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

/// A small reverse-mode automatic differentiation over scalars. Code written over a type S runs with S = double for
/// values and with S = Var for exact gradients, so the oracle has no backward pass that could be wrong.
namespace oracle {

class Var;

/// Records every operation between Vars while it is alive. One at a time per thread.
class Tape {
 public:
  Tape() { current_ = this; }
  ~Tape() { current_ = nullptr; }
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  /// A variable to differentiate by.
  Var leaf(double value);

  /// d output / d node for every node up to now, by one sweep backwards.
  std::vector<double> sweep(const Var& output) const;

  static Tape& current() { return *current_; }
  int record(int first, double by_first, int second, double by_second) {
    nodes_.push_back({by_first, by_second, first, second});
    return static_cast<int>(nodes_.size()) - 1;
  }

 private:
  struct Node {
    double by_first, by_second;  // partial derivatives
    int first, second;           // operands; negative: a constant
  };
  std::vector<Node> nodes_;
  static thread_local Tape* current_;
};

inline thread_local Tape* Tape::current_ = nullptr;

/// A value and its place on the tape; a plain number is a constant.
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
  return {result, Tape::current().record(x.node(), derivative, -1, 0.0)};
}

inline Var binary(const Var& a, double by_a, const Var& b, double by_b, double result) {
  if (a.node() < 0 && b.node() < 0) return result;
  return {result, Tape::current().record(a.node(), by_a, b.node(), by_b)};
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

inline Var Tape::leaf(double value) { return {value, record(-1, 0.0, -1, 0.0)}; }

inline std::vector<double> Tape::sweep(const Var& output) const {
  std::vector<double> adjoint(nodes_.size(), 0.0);
  if (output.node() < 0) return adjoint;
  adjoint[static_cast<std::size_t>(output.node())] = 1.0;
  for (std::size_t i = nodes_.size(); i-- > 0;) {
    const Node& node = nodes_[i];
    if (adjoint[i] == 0.0) continue;
    if (node.first >= 0) adjoint[static_cast<std::size_t>(node.first)] += node.by_first * adjoint[i];
    if (node.second >= 0) adjoint[static_cast<std::size_t>(node.second)] += node.by_second * adjoint[i];
  }
  return adjoint;
}

}  // namespace oracle
