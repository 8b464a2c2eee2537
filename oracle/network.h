#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "oracle/cells.h"
#include "oracle/tape.h"
#include "penstock/recurrent.h"

/// A stack of recurrent layers, one scalar at a time, and its exact gradients.
///
/// Sequences are contiguous, with one vector of C channels per position. Padded batches have B * T positions (b * T +
/// t), packed ones have one position per step.
namespace oracle {

using penstock::Batch;
using penstock::RecurrentSpec;

/// The positions of row b.
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

/// Weights of one layer in one direction. Missing ones are empty.
template <class S>
struct Weights {
  std::vector<S> weight_ih;  // [G*H, I]
  std::vector<S> weight_hh;  // [heads, G*D, D]
  std::vector<S> bias_ih;    // [G*H]
  std::vector<S> bias_hh;    // [G*H]
};

/// The arguments of a network that gradients are computed for.
template <class S>
struct Arguments {
  std::vector<Weights<S>> weights;  // [layers * directions], index layer * directions + direction
  std::vector<S> x;                 // [positions, I]
  std::vector<S> state_in;          // [S, layers * directions, B, H], or empty for zeros
};

template <class S>
struct Results {
  std::vector<S> y;          // [positions, H * directions], zero in padding
  std::vector<S> state_out;  // [S, layers * directions, B, H]
  std::vector<S> states;     // [positions, directions, S - 1, H], states of the last layer except the output
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

/// Returns W_g x + b_g for all gates g, [G][H], from `x` [I].
template <class S>
std::vector<Vector<S>> input_products(const Weights<S>& w, Index gates, Index hidden, const S* x, Index inputs) {
  std::vector<Vector<S>> products;
  for (Index g = 0; g < gates; ++g) {
    Vector<S> product;
    for (Index j = 0; j < hidden; ++j) {
      const Index row = g * hidden + j;
      const S sum = dot(&w.weight_ih[row * inputs], x, inputs);
      product.push_back(w.bias_ih.empty() ? sum : sum + w.bias_ih[row]);
    }
    products.push_back(product);
  }
  return products;
}

/// Returns R_g v + b_g [H] for one gate from v [H]. A unit of head k reads only the units of head k.
template <class S>
Vector<S> recurrent_product(const Weights<S>& w, Index gates, Index heads, Index gate, const Vector<S>& v) {
  const Index hidden = static_cast<Index>(v.size()), d = hidden / heads;
  const Vector<S>& factors = consecutive(v);
  Vector<S> product;
  for (Index j = 0; j < hidden; ++j) {
    const Index head = j / d, row = (head * gates + gate) * d + j % d;
    const S sum = dot(&w.weight_hh[row * d], &factors[head * d], d);
    product.push_back(w.bias_hh.empty() ? sum : sum + w.bias_hh[gate * hidden + j]);
  }
  return product;
}

/// Runs one layer in one direction over row b. Writes channels `channel` .. channel + H - 1 of `out` [positions,
/// width]. `state` is the state before the row's first step, and afterwards that after its last. `others` [positions,
/// directions, S - 1, H] receives the other states of direction `channel` / H.
template <class S>
void run_row(const RecurrentSpec& spec, const Batch& batch, Index b, bool reverse, const Weights<S>& w,
             const std::vector<S>& in, Index inputs, State<S>& state, std::vector<S>& out, Index width, Index channel,
             std::vector<S>& others) {
  const Cell<S>& cell = find_cell<S>(spec.cell);
  const Span span = row_span(batch, b);
  for (Index s = 0; s < span.length; ++s) {
    const Index position = span.first + (reverse ? span.length - 1 - s : s);
    if (batch.reset && batch.reset[position]) {
      for (Vector<S>& values : state) std::fill(values.begin(), values.end(), S(0.0));
    }
    for (S& h : state[0]) h = limited(h, spec.gradient_clip);
    Inputs<S> step;
    step.wx = input_products(w, cell.gates, spec.hidden_size, &in[position * inputs], inputs);
    step.recurrent = [&](Index gate, const Vector<S>& v) {
      return recurrent_product(w, cell.gates, spec.heads, gate, v);
    };
    state = cell.step(step, state);
    for (Index j = 0; j < spec.hidden_size; ++j) {
      out[position * width + channel + j] = state[0][j];
      for (Index k = 1; k < cell.states; ++k) {
        others[(position * width + channel) * (cell.states - 1) + (k - 1) * spec.hidden_size + j] = state[k][j];
      }
    }
  }
}

/// Runs the forward pass of the whole stack.
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
    results.states.assign(out.size() * (cell.states - 1), S(0.0));
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
                k * hidden, results.states);
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

// Compiled once, in network.cc.
extern template Results<double> forward(const RecurrentSpec&, const Batch&, const Arguments<double>&);
extern template Results<Var> forward(const RecurrentSpec&, const Batch&, const Arguments<Var>&);

/// Returns the gradients of sum(y * dy) + sum(state_out * dstate_out) + sum(states * dstates) with respect to all
/// arguments. `dy` and `dstates` are not read in padding. `dstate_out` and `dstates` may be empty for zeros. With
/// Terms::sizes it returns the sums of the absolute values of their terms instead.
Arguments<double> gradients(const RecurrentSpec& spec, const Batch& batch, const Arguments<double>& arguments,
                            const std::vector<double>& dy, const std::vector<double>& dstate_out,
                            Terms terms = Terms::signed_ones, const std::vector<double>& dstates = {});

/// Results and gradients of in_pieces().
struct Passes {
  Results<double> results;
  Arguments<double> gradients;
};

/// Runs one row of one forward layer in pieces of at most `piece` steps. The results and the gradients (of sum(y * dy))
/// are those of the whole sequence, but the tape is only as long as a piece. Calls `at_piece` before each piece.
Passes in_pieces(
    const RecurrentSpec& spec, Index steps, const Arguments<double>& arguments, const std::vector<double>& dy,
    Index piece, const std::function<void()>& at_piece = [] {});

}  // namespace oracle
