#pragma once

#include <cmath>
#include <utility>
#include <vector>

#include "oracle/tape.h"

namespace oracle {

/// Returns h [T] of h_t = a_t h_{t-1} + b_t from h = 0, for one channel a, b [T].
template <class S>
std::vector<S> scan(const std::vector<S>& a, const std::vector<S>& b) {
  std::vector<S> h;
  S last = 0.0;
  for (std::size_t t = 0; t < a.size(); ++t) {
    last = a[t] * last + b[t];
    h.push_back(last);
  }
  return h;
}

/// Returns scan() of exp(log_a) and exp(log_b).
template <class S>
std::vector<S> logarithmic_scan(const std::vector<S>& log_a, const std::vector<S>& log_b) {
  using std::exp;
  std::vector<S> a, b;
  for (const S& x : log_a) a.push_back(exp(x));
  for (const S& x : log_b) b.push_back(exp(x));
  return scan(a, b);
}

/// Returns the gradients [T] of sum(h * dh) with respect to both terms. `function` is scan or logarithmic_scan.
template <class Function>
std::pair<std::vector<double>, std::vector<double>> scan_gradients(const Function& function,
                                                                   const std::vector<double>& first,
                                                                   const std::vector<double>& second,
                                                                   const std::vector<double>& dh) {
  Tape tape;
  std::vector<Var> a, b;
  for (const double x : first) a.push_back(tape.leaf(x));
  for (const double x : second) b.push_back(tape.leaf(x));
  const std::vector<Var> h = function(a, b);
  Var loss = 0.0;
  for (std::size_t t = 0; t < dh.size(); ++t) loss += h[t] * Var(dh[t]);
  const std::vector<double> adjoint = tape.sweep(loss);
  std::pair<std::vector<double>, std::vector<double>> gradients;
  for (const Var& x : a) gradients.first.push_back(adjoint[static_cast<std::size_t>(x.node())]);
  for (const Var& x : b) gradients.second.push_back(adjoint[static_cast<std::size_t>(x.node())]);
  return gradients;
}

}  // namespace oracle
