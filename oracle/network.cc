#include "oracle/network.h"

namespace oracle {

template Results<double> forward(const RecurrentSpec&, const Batch&, const Arguments<double>&);
template Results<Var> forward(const RecurrentSpec&, const Batch&, const Arguments<Var>&);

Arguments<double> gradients(const RecurrentSpec& spec, const Batch& batch, const Arguments<double>& arguments,
                            const std::vector<double>& dy, const std::vector<double>& dstate_out, Terms terms,
                            const std::vector<double>& dstates) {
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
  for (std::size_t i = 0; i < dstates.size(); ++i) {
    if (results.states[i].node() >= 0) loss += results.states[i] * Var(dstates[i]);
  }
  const std::vector<double> adjoint = tape.sweep(loss, terms);
  Arguments<double> result;
  for_each_array(result, variables, [&](std::vector<double>& to, const std::vector<Var>& from) {
    for (const Var& x : from) to.push_back(adjoint[x.node()]);
  });
  return result;
}

Passes in_pieces(const RecurrentSpec& spec, Index steps, const Arguments<double>& arguments,
                 const std::vector<double>& dy, Index piece, const std::function<void()>& at_piece) {
  const Index states = find_cell<double>(spec.cell).states * spec.hidden_size;
  const auto part = [](const std::vector<double>& all, Index first, Index count) {
    return std::vector<double>(all.begin() + first, all.begin() + first + count);
  };
  Passes passes;
  std::vector<Arguments<double>> pieces;  // arguments without weights
  std::vector<double> state = arguments.state_in.empty() ? std::vector<double>(states, 0.0) : arguments.state_in;
  Arguments<double> current{.weights = arguments.weights, .x = {}, .state_in = {}};
  for (Index first = 0; first < steps; first += piece) {
    at_piece();
    const Index count = std::min(piece, steps - first);
    current.x = part(arguments.x, first * spec.input_size, count * spec.input_size);
    current.state_in = state;
    const Results<double> results = forward(spec, {.rows = 1, .steps = count}, current);
    passes.results.y.insert(passes.results.y.end(), results.y.begin(), results.y.end());
    state = results.state_out;
    pieces.push_back({.weights = {}, .x = current.x, .state_in = current.state_in});
  }
  passes.results.state_out = state;
  if (dy.empty()) return passes;

  passes.gradients.x.resize(arguments.x.size());
  std::vector<double> dstate(states, 0.0);
  for (Index i = static_cast<Index>(pieces.size()); i-- > 0;) {
    at_piece();
    const Index first = i * piece, count = std::min(piece, steps - first);
    current.x = pieces[i].x;
    current.state_in = pieces[i].state_in;
    const Arguments<double> found = gradients(spec, {.rows = 1, .steps = count}, current,
                                              part(dy, first * spec.hidden_size, count * spec.hidden_size), dstate);
    std::copy(found.x.begin(), found.x.end(), passes.gradients.x.begin() + first * spec.input_size);
    dstate = found.state_in;
    const Arguments<double> weights{.weights = found.weights, .x = {}, .state_in = {}};
    for_each_array(passes.gradients, weights, [](std::vector<double>& to, const std::vector<double>& from) {
      if (to.empty()) to.resize(from.size(), 0.0);
      for (std::size_t k = 0; k < from.size(); ++k) to[k] += from[k];
    });
  }
  passes.gradients.state_in = dstate;
  return passes;
}

}  // namespace oracle
