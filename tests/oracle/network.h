#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "oracle/cells.h"
#include "oracle/tape.h"
#include "penstock/recurrent.h"

/// A whole stack of recurrent layers, one scalar at a time, and its exact gradients.
///
/// Sequences are stored without gaps, one vector of C channels per position: padded batches have B * T positions
/// (b * T + t), packed ones as many as there are steps.
namespace oracle {

using penstock::Batch;
using penstock::RecurrentSpec;

/// Where row b lies among the positions.
struct Span {
  Index first = 0;
  Index length = 0;
};

inline Span row_span(const Batch& batch, Index b) {
  if (batch.cu_seqlens) return {batch.cu_seqlens[b], batch.cu_seqlens[b + 1] - batch.cu_seqlens[b]};
  return {b * batch.steps, batch.lengths ? batch.lengths[b] : batch.steps};
}

inline Index position_count(const Batch& batch) {
  return batch.cu_seqlens ? batch.cu_seqlens[batch.rows] : batch.rows * batch.steps;
}

/// One layer in one direction; what the layer does not have is empty.
template <class S>
struct Weights {
  std::vector<S> weight_ih;  // [G*H, I]
  std::vector<S> weight_hh;  // [heads, G*D, D]
  std::vector<S> bias_ih;    // [G*H]
  std::vector<S> bias_hh;    // [G*H]
};

/// Everything that a network's results can be differentiated by.
template <class S>
struct Arguments {
  std::vector<Weights<S>> weights;  // [layers * directions], index layer * directions + direction
  std::vector<S> x;                 // [positions, I]
  std::vector<S> state_in;          // [S, layers * directions, B, H], or empty for zeros
};

template <class S>
struct Results {
  std::vector<S> y;          // [positions, H * directions], zero where there is no step
  std::vector<S> state_out;  // [S, layers * directions, B, H]
};

/// Calls visit(array of `to`, array of `from`) for every array of two Arguments.
template <class To, class From, class Visit>
void for_each_array(Arguments<To>& to, const Arguments<From>& from, Visit&& visit) {
  to.weights.resize(from.weights.size());
  for (std::size_t k = 0; k < from.weights.size(); ++k) {
    visit(to.weights[k].weight_ih, from.weights[k].weight_ih);
    visit(to.weights[k].weight_hh, from.weights[k].weight_hh);
    visit(to.weights[k].bias_ih, from.weights[k].bias_ih);
    visit(to.weights[k].bias_hh, from.weights[k].bias_hh);
  }
  visit(to.x, from.x);
  visit(to.state_in, from.state_in);
}

/// W_g x + b_g for all gates g: [G][H] from `x` [I].
template <class S>
std::vector<Vector<S>> input_products(const Weights<S>& w, Index gates, Index hidden, const S* x, Index inputs) {
  std::vector<Vector<S>> products;
  for (Index g = 0; g < gates; ++g) {
    Vector<S> product;
    for (Index j = 0; j < hidden; ++j) {
      const Index row = g * hidden + j;
      S sum = w.bias_ih.empty() ? S(0.0) : w.bias_ih[row];
      for (Index i = 0; i < inputs; ++i) sum += w.weight_ih[row * inputs + i] * x[i];
      product.push_back(sum);
    }
    products.push_back(product);
  }
  return products;
}

/// R_g v + b_g for one gate: [H] from v [H]. Unit j of head k sees only the units of head k.
template <class S>
Vector<S> recurrent_product(const Weights<S>& w, Index gates, Index heads, Index gate, const Vector<S>& v) {
  const Index hidden = static_cast<Index>(v.size()), d = hidden / heads;
  Vector<S> product;
  for (Index j = 0; j < hidden; ++j) {
    const Index head = j / d, row = (head * gates + gate) * d + j % d;
    S sum = w.bias_hh.empty() ? S(0.0) : w.bias_hh[gate * hidden + j];
    for (Index e = 0; e < d; ++e) sum += w.weight_hh[row * d + e] * v[head * d + e];
    product.push_back(sum);
  }
  return product;
}

/// One layer in one direction: writes channels `channel` .. channel + H - 1 of `out` [positions, width].
/// `state` is read at the row's start and holds the row's end afterwards.
template <class S>
void run_row(const RecurrentSpec& spec, const Batch& batch, Index b, bool reverse, const Weights<S>& w,
             const std::vector<S>& in, Index inputs, State<S>& state, std::vector<S>& out, Index width, Index channel) {
  const Cell<S>& cell = find_cell<S>(spec.cell);
  const Span span = row_span(batch, b);
  for (Index s = 0; s < span.length; ++s) {
    const Index position = span.first + (reverse ? span.length - 1 - s : s);
    if (batch.reset && batch.reset[position]) {
      for (Vector<S>& values : state) std::fill(values.begin(), values.end(), S(0.0));
    }
    Inputs<S> step;
    step.wx = input_products(w, cell.gates, spec.hidden_size, &in[position * inputs], inputs);
    step.recurrent = [&](Index gate, const Vector<S>& v) {
      return recurrent_product(w, cell.gates, spec.heads, gate, v);
    };
    state = cell.step(step, state);
    for (Index j = 0; j < spec.hidden_size; ++j) out[position * width + channel + j] = state[0][j];
  }
}

/// The forward pass of the whole stack.
template <class S>
Results<S> forward(const RecurrentSpec& spec, const Batch& batch, const Arguments<S>& arguments) {
  const Cell<S>& cell = find_cell<S>(spec.cell);
  const Index hidden = spec.hidden_size, directions = spec.directions(), sublayers = spec.layers * directions;
  Results<S> results;
  results.state_out.assign(cell.states * sublayers * batch.rows * hidden, S(0.0));
  std::vector<S> in = arguments.x;
  Index inputs = spec.input_size;
  for (Index layer = 0; layer < spec.layers; ++layer) {
    std::vector<S> out(position_count(batch) * hidden * directions, S(0.0));
    for (Index k = 0; k < directions; ++k) {
      const bool reverse = spec.direction == penstock::Direction::reverse || k == 1;
      const Index sublayer = layer * directions + k;
      for (Index b = 0; b < batch.rows; ++b) {
        const auto place = [&](Index s, Index j) { return ((s * sublayers + sublayer) * batch.rows + b) * hidden + j; };
        State<S> state(cell.states, Vector<S>(hidden, S(0.0)));
        for (Index s = 0; s < cell.states && !arguments.state_in.empty(); ++s) {
          for (Index j = 0; j < hidden; ++j) state[s][j] = arguments.state_in[place(s, j)];
        }
        run_row(spec, batch, b, reverse, arguments.weights[sublayer], in, inputs, state, out, hidden * directions,
                k * hidden);
        for (Index s = 0; s < cell.states; ++s) {
          for (Index j = 0; j < hidden; ++j) results.state_out[place(s, j)] = state[s][j];
        }
      }
    }
    in = std::move(out);
    inputs = hidden * directions;
  }
  results.y = std::move(in);
  return results;
}

/// Gradients of sum(y * dy) + sum(state_out * dstate_out) by every argument. `dy` is read only where there is a
/// step; `dstate_out` may be empty for zeros.
inline Arguments<double> gradients(const RecurrentSpec& spec, const Batch& batch, const Arguments<double>& arguments,
                                   const std::vector<double>& dy, const std::vector<double>& dstate_out) {
  Tape tape;
  Arguments<Var> variables;
  for_each_array(variables, arguments, [&](std::vector<Var>& to, const std::vector<double>& from) {
    for (double x : from) to.push_back(tape.leaf(x));
  });
  const Results<Var> results = forward(spec, batch, variables);
  Var loss = 0.0;
  for (std::size_t i = 0; i < dy.size(); ++i) {
    if (results.y[i].node() >= 0) loss += results.y[i] * Var(dy[i]);
  }
  for (std::size_t i = 0; i < dstate_out.size(); ++i) loss += results.state_out[i] * Var(dstate_out[i]);
  const std::vector<double> adjoint = tape.sweep(loss);
  Arguments<double> result;
  for_each_array(result, variables, [&](std::vector<double>& to, const std::vector<Var>& from) {
    for (const Var& x : from) to.push_back(adjoint[x.node()]);
  });
  return result;
}

}  // namespace oracle
