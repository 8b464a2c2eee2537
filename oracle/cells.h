#pragma once

#include <cmath>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "oracle/tape.h"
#include "penstock/types.h"

/// The equations of every cell, as in a textbook. The code is independent of the library, which is tested against it.
namespace oracle {

using penstock::Index;

template <class S>
using Vector = std::vector<S>;  // [H]

template <class S>
using State = std::vector<Vector<S>>;  // [S][H]; state 0 is the output h

/// The inputs of a cell for one row at one step.
template <class S>
struct Inputs {
  std::vector<Vector<S>> wx;  // [G][H]: W_g x + b_ih,g

  /// Returns R_g v + b_hh,g [H] for a vector v [H].
  std::function<Vector<S>(Index gate, const Vector<S>& v)> recurrent;
};

template <class S>
struct Cell {
  std::string name;
  Index gates;
  Index states;
  bool scan;
  std::function<State<S>(const Inputs<S>&, const State<S>&)> step;
};

/// Returns the larger value. In a tie it returns the first, which then receives the (sub)gradient.
template <class S>
S maximum(const S& a, const S& b) {
  return value(a) >= value(b) ? a : b;
}

template <class S>
S sigmoid(const S& x) {
  using std::exp;
  if (value(x) >= 0) return S(1.0) / (S(1.0) + exp(-x));
  const S e = exp(x);
  return e / (S(1.0) + e);
}

template <class S>
S log_sigmoid(const S& x) {
  using std::exp;
  using std::log1p;
  if (value(x) >= 0) return -log1p(exp(-x));
  return x - log1p(exp(x));
}

/// The positive candidate of minGRU and minLSTM: g(x) = x + 0.5 for x >= 0, otherwise sigmoid(x).
template <class S>
S positive(const S& x) {
  return value(x) >= 0 ? x + S(0.5) : sigmoid(x);
}

template <class S>
Vector<S> times(const Vector<S>& a, const Vector<S>& b) {
  Vector<S> product;
  for (std::size_t j = 0; j < a.size(); ++j) product.push_back(a[j] * b[j]);
  return product;
}

/// h = tanh(W x + R h)
template <class S>
State<S> elman(const Inputs<S>& in, const State<S>& prev) {
  using std::tanh;
  const Vector<S> rh = in.recurrent(0, prev[0]);
  State<S> next = prev;
  for (std::size_t j = 0; j < rh.size(); ++j) next[0][j] = tanh(in.wx[0][j] + rh[j]);
  return next;
}

/// h = max(0, W x + R h). The gradient at 0 is 0.
template <class S>
State<S> elman_relu(const Inputs<S>& in, const State<S>& prev) {
  const Vector<S> rh = in.recurrent(0, prev[0]);
  State<S> next = prev;
  for (std::size_t j = 0; j < rh.size(); ++j) next[0][j] = maximum(S(0.0), in.wx[0][j] + rh[j]);
  return next;
}

/// Reset gate after the product: n = tanh(W_n x + r (R_n h + b_hn)), h = (1 - z) n + z h.
template <class S>
State<S> gru(const Inputs<S>& in, const State<S>& prev) {
  using std::tanh;
  const Vector<S>& h = prev[0];
  const Vector<S> rh_r = in.recurrent(0, h), rh_z = in.recurrent(1, h), rh_n = in.recurrent(2, h);
  State<S> next = prev;
  for (std::size_t j = 0; j < h.size(); ++j) {
    const S r = sigmoid(in.wx[0][j] + rh_r[j]);
    const S z = sigmoid(in.wx[1][j] + rh_z[j]);
    const S n = tanh(in.wx[2][j] + r * rh_n[j]);
    next[0][j] = (S(1.0) - z) * n + z * h[j];
  }
  return next;
}

/// Reset gate before the product: n = tanh(W_n x + R_n (r h) + b_hn), h = (1 - z) n + z h.
template <class S>
State<S> gru_before(const Inputs<S>& in, const State<S>& prev) {
  using std::tanh;
  const Vector<S>& h = prev[0];
  const Vector<S> rh_r = in.recurrent(0, h), rh_z = in.recurrent(1, h);
  Vector<S> r;
  for (std::size_t j = 0; j < h.size(); ++j) r.push_back(sigmoid(in.wx[0][j] + rh_r[j]));
  const Vector<S> rh_n = in.recurrent(2, times(r, h));
  State<S> next = prev;
  for (std::size_t j = 0; j < h.size(); ++j) {
    const S z = sigmoid(in.wx[1][j] + rh_z[j]);
    const S n = tanh(in.wx[2][j] + rh_n[j]);
    next[0][j] = (S(1.0) - z) * n + z * h[j];
  }
  return next;
}

/// Gates i, f, g, o; states h, c.
template <class S>
State<S> lstm(const Inputs<S>& in, const State<S>& prev) {
  using std::tanh;
  const Vector<S>&h = prev[0], &c = prev[1];
  const Vector<S> rh_i = in.recurrent(0, h), rh_f = in.recurrent(1, h);
  const Vector<S> rh_g = in.recurrent(2, h), rh_o = in.recurrent(3, h);
  State<S> next = prev;
  for (std::size_t j = 0; j < h.size(); ++j) {
    const S i = sigmoid(in.wx[0][j] + rh_i[j]);
    const S f = sigmoid(in.wx[1][j] + rh_f[j]);
    const S g = tanh(in.wx[2][j] + rh_g[j]);
    const S o = sigmoid(in.wx[3][j] + rh_o[j]);
    next[1][j] = f * c[j] + i * g;
    next[0][j] = o * tanh(next[1][j]);
  }
  return next;
}

/// Gates i, f, z, o; states h, c, n, m. The input gate is exp, the forget gate sigmoid. Both are scaled by exp(-m),
/// which does not change c / n. A row with n = 0 has no past.
template <class S>
State<S> slstm(const Inputs<S>& in, const State<S>& prev) {
  using std::exp;
  using std::tanh;
  const Vector<S>&h = prev[0], &c = prev[1], &n = prev[2], &m = prev[3];
  const Vector<S> rh_i = in.recurrent(0, h), rh_f = in.recurrent(1, h);
  const Vector<S> rh_z = in.recurrent(2, h), rh_o = in.recurrent(3, h);
  State<S> next = prev;
  for (std::size_t j = 0; j < h.size(); ++j) {
    const S i = in.wx[0][j] + rh_i[j];
    const S lf = log_sigmoid(in.wx[1][j] + rh_f[j]);
    const S z = tanh(in.wx[2][j] + rh_z[j]);
    const S o = sigmoid(in.wx[3][j] + rh_o[j]);
    const bool start = value(n[j]) == 0.0;
    const S m_next = start ? i : maximum(i, lf + m[j]);
    const S forget = start ? S(0.0) : exp(lf + m[j] - m_next);
    const S input = exp(i - m_next);
    next[1][j] = forget * c[j] + input * z;
    next[2][j] = forget * n[j] + input;
    next[3][j] = m_next;
    next[0][j] = o * next[1][j] / next[2][j];
  }
  return next;
}

/// Gates z, h~: h = (1 - z) h + z a(h~) with a the identity or g.
template <class S>
State<S> mingru(const Inputs<S>& in, const State<S>& prev, bool is_positive) {
  State<S> next = prev;
  for (std::size_t j = 0; j < prev[0].size(); ++j) {
    const S z = sigmoid(in.wx[0][j]);
    const S candidate = is_positive ? positive(in.wx[1][j]) : in.wx[1][j];
    next[0][j] = (S(1.0) - z) * prev[0][j] + z * candidate;
  }
  return next;
}

/// Gates f, i, h~: h = f' h + i' a(h~) with f' = f / (f + i), i' = i / (f + i), f and i sigmoids.
/// f / (f + i) is computed as sigmoid(log f - log i), which is also right if f and i underflow.
template <class S>
State<S> minlstm(const Inputs<S>& in, const State<S>& prev, bool is_positive) {
  State<S> next = prev;
  for (std::size_t j = 0; j < prev[0].size(); ++j) {
    const S log_f = log_sigmoid(in.wx[0][j]), log_i = log_sigmoid(in.wx[1][j]);
    const S candidate = is_positive ? positive(in.wx[2][j]) : in.wx[2][j];
    next[0][j] = sigmoid(log_f - log_i) * prev[0][j] + sigmoid(log_i - log_f) * candidate;
  }
  return next;
}

template <class S>
const std::vector<Cell<S>>& cells() {
  using In = Inputs<S>;
  using St = State<S>;
  static const std::vector<Cell<S>> list = {
      {"elman", 1, 1, false, elman<S>},
      {"elman-relu", 1, 1, false, elman_relu<S>},
      {"gru", 3, 1, false, gru<S>},
      {"gru-before", 3, 1, false, gru_before<S>},
      {"lstm", 4, 2, false, lstm<S>},
      {"slstm", 4, 4, false, slstm<S>},
      {"mingru", 2, 1, true, [](const In& in, const St& prev) { return mingru(in, prev, false); }},
      {"mingru-log", 2, 1, true, [](const In& in, const St& prev) { return mingru(in, prev, true); }},
      {"minlstm", 3, 1, true, [](const In& in, const St& prev) { return minlstm(in, prev, false); }},
      {"minlstm-log", 3, 1, true, [](const In& in, const St& prev) { return minlstm(in, prev, true); }},
  };
  return list;
}

template <class S>
const Cell<S>& find_cell(const std::string& name) {
  for (const Cell<S>& cell : cells<S>()) {
    if (cell.name == name) return cell;
  }
  throw std::invalid_argument("the oracle has no cell \"" + name + "\"");
}

}  // namespace oracle
