#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "oracle/network.h"
#include "penstock/recurrent.h"
#include "plan/cpu/pays_for_team.h"
#include "support/cases.h"
#include "support/names.h"
#include "support/sequence.h"
#include "support/tolerance.h"

/// One check for every cell of the list: run a network forwards and backwards through memory full of traps, and
/// compare everything that comes out, with the oracle or with another run.
namespace penstock::test {

/// Small networks, too, run on several threads.
[[maybe_unused]] inline const double shares_every_call = plan::team_microseconds = 0;

/// Inputs of a network; sequences in the oracle's order, states [S, layers * directions, B, H].
template <class Real>
struct Inputs {
  Index rows = 1, steps = 1;
  std::vector<Index> lengths = {}, cu_seqlens = {};  // empty: none
  bool by_steps = false;                             // of packed rows
  std::vector<std::uint8_t> reset = {};              // empty: none
  Restarts restarts = Restarts::zeros;               // their states lie in state_in
  Layout layout = Layout::batch_first;
  bool mixed = false;
  std::vector<Real> x = {}, dy = {};
  std::vector<Real> state_in = {}, dstate_out = {};  // empty: none
  bool every_state = false;
  std::vector<Real> dstates = {};  // empty: none

  Batch batch() const {
    return {.rows = rows,
            .steps = steps,
            .lengths = lengths.empty() ? nullptr : lengths.data(),
            .cu_seqlens = cu_seqlens.empty() ? nullptr : cu_seqlens.data(),
            .by_steps = by_steps,
            .reset = reset.empty() ? nullptr : reset.data(),
            .restarts = restarts};
  }
};

/// Results of a forward and a backward call.
template <class Real>
struct Outputs {
  std::vector<Real> y = {}, state_out = {}, dx = {}, dstate_in = {};
  std::vector<Real> states = {};                                          // of every step, where they are asked for
  std::vector<std::pair<std::string, std::vector<Real>>> gradients = {};  // of each parameter
};

template <class Real>
std::vector<Real> draw(Random& random, Index count, double low = -1.0, double high = 1.0) {
  std::vector<Real> values(count);
  for (Real& x : values) x = static_cast<Real>(random.uniform(low, high));
  return values;
}

/// Weights within +-1/sqrt(H), so that the recurrence neither explodes nor dies; biases as the case says.
template <class Real>
Recurrent<Real> make_network(const std::string& cell, const Case& c, std::uint64_t seed = 1) {
  Recurrent<Real> network(c.spec(cell));
  Random random(seed);
  for (auto& parameter : network.parameters()) {
    const bool bias = parameter.name.starts_with("bias");
    const double bound = bias ? c.bias_scale : 1.0 / std::sqrt(static_cast<double>(c.hidden));
    for (Real& x : parameter.value) x = static_cast<Real>(random.uniform(-bound, bound));
  }
  network.weights_changed();
  return network;
}

/// States as a running cell could have left them: n of sLSTM (state 2) is positive. In the first of several rows it is
/// 0, the mark of a row that has seen nothing yet.
template <class Real>
std::vector<Real> draw_state(Random& random, const Recurrent<Real>& network, Index rows) {
  std::vector<Real> state;
  const RecurrentSpec& spec = network.spec();
  const Index states = spec.layers * spec.directions(), hidden = spec.hidden_size;
  for (Index s = 0; s < find_cell(spec.cell).states; ++s) {
    std::vector<Real> values = draw<Real>(random, states * rows * hidden, s == 2 ? 0.5 : -1.0);
    for (Index k = 0; k < states && s == 2 && rows > 1; ++k) std::fill_n(&values[k * rows * hidden], hidden, Real(0));
    state.insert(state.end(), values.begin(), values.end());
  }
  return state;
}

/// Row lengths 0 .. steps that are all different as long as there are enough, the longest equal to `steps`.
inline std::vector<Index> uneven_lengths(Index rows, Index steps) {
  std::vector<Index> lengths(rows);
  for (Index b = 0; b < rows; ++b) lengths[b] = steps * ((b + 2) % rows) / std::max<Index>(1, rows - 1);
  return lengths;
}

/// Lengths from `steps` down to 1.
inline std::vector<Index> sorted_lengths(Index rows, Index steps) {
  std::vector<Index> lengths(rows, steps);
  for (Index b = 1; b < rows; ++b) lengths[b] = 1 + (steps - 1) * (rows - 1 - b) / (rows - 1);
  return lengths;
}

/// Channels of the states but the output of the last layer.
inline Index other_states(const RecurrentSpec& spec) { return (find_cell(spec.cell).states - 1) * spec.output_size(); }

template <class Real>
Inputs<Real> make_inputs(const Recurrent<Real>& network, const Case& c, std::uint64_t seed = 2) {
  Random random(seed);
  Inputs<Real> in{.rows = c.rows, .steps = c.steps, .layout = c.layout, .mixed = c.mixed};
  const bool sorted = c.form == RowForm::sorted;
  const std::vector<Index> lengths = sorted ? sorted_lengths(c.rows, c.steps) : uneven_lengths(c.rows, c.steps);
  if (c.form == RowForm::lengths) in.lengths = lengths;
  if (c.form == RowForm::packed || sorted) {
    in.cu_seqlens = {0};
    for (Index length : lengths) in.cu_seqlens.push_back(in.cu_seqlens.back() + length);
  }
  const Index positions = oracle::position_count(in.batch());
  if (c.reset) {
    // A handful of resets in a row, so that long sequences also have long runs of steps without.
    for (Index p = 0; p < positions; ++p) in.reset.push_back(random.below(std::max<Index>(4, c.steps / 8)) == 0);
  }
  in.x = draw<Real>(random, positions * c.input);
  in.dy = draw<Real>(random, positions * network.spec().output_size());
  if (c.every_state) {
    in.every_state = true;
    in.dstates = draw<Real>(random, positions * other_states(network.spec()));
  }
  if (c.state) {
    in.state_in = draw_state(random, network, c.rows);
    in.dstate_out = draw<Real>(random, static_cast<Index>(in.state_in.size()));
  }
  return in;
}

template <class Real>
void zero_gradients(Recurrent<Real>& network) {
  network.zero_gradients();
}

/// Returns the gradient of a parameter, copied from its device.
template <class Real>
std::vector<Real> read_gradient(const Recurrent<Real>& network, const typename Recurrent<Real>::Parameter& parameter) {
  std::size_t size = 1;
  for (const Index extent : parameter.shape) size *= static_cast<std::size_t>(extent);
  std::vector<Real> values(size);
  network.read_gradient(parameter.name, values);
  return values;
}

template <class Real>
const Real* pointer_or_null(const std::vector<Real>& values) {
  return values.empty() ? nullptr : values.data();
}

/// Forwards and backwards, from gradients of zero.
template <class Real>
Outputs<Real> run(Recurrent<Real>& network, const Inputs<Real>& in, const Execution& execution = {}) {
  const Batch batch = in.batch();
  const Index inputs = network.spec().input_size, outputs = network.spec().output_size();
  const auto layout = [&](int place) { return shifted(in.layout, in.mixed ? place : 0); };
  Sequence<Real> x(batch, inputs, layout(0)), y(batch, outputs, layout(1));
  Sequence<Real> dx(batch, inputs, layout(2)), dy(batch, outputs, layout(3));
  Sequence<Real> states(batch, other_states(network.spec()), layout(4)), dstates = states;
  x.fill(in.x);
  dy.fill(in.dy);
  if (in.every_state) dstates.fill(in.dstates);
  Outputs<Real> out;
  out.state_out.resize(network.state_size() * in.rows);
  out.dstate_in.resize(in.state_in.size());
  RecurrentTape<Real> tape;
  network.forward(batch, x.view(), y.view(), pointer_or_null(in.state_in), out.state_out.data(), &tape, execution,
                  in.every_state ? states.view() : SequenceView<Real>());
  zero_gradients(network);
  network.backward(batch, x.view(), dy.view(), pointer_or_null(in.dstate_out), dx.view(),
                   in.state_in.empty() ? nullptr : out.dstate_in.data(), tape, execution,
                   in.every_state ? dstates.view() : SequenceView<Real>());
  if (in.every_state) {
    EXPECT_TRUE(states.was_written_where_due());
    out.states = states.values();
  }
  EXPECT_TRUE(y.was_written_where_due());
  EXPECT_TRUE(dx.was_written_where_due());
  out.y = y.values();
  out.dx = dx.values();
  for (const auto& parameter : network.parameters()) {
    out.gradients.emplace_back(parameter.name, read_gradient(network, parameter));
  }
  return out;
}

template <class Real>
std::vector<double> widen(const std::vector<Real>& values) {
  return {values.begin(), values.end()};
}

/// Where a parameter ("weight_hh_l1_reverse") stands in the oracle's arguments.
inline std::vector<double>& find_array(oracle::Arguments<double>& arguments, const RecurrentSpec& spec,
                                       const std::string& name) {
  const std::size_t layer_mark = name.rfind("_l");
  const bool second = spec.directions() == 2 && name.ends_with("_reverse");
  const Index layer = std::stol(name.substr(layer_mark + 2));
  oracle::Weights<double>& weights = arguments.weights.at(layer * spec.directions() + second);
  const std::string kind = name.substr(0, layer_mark);
  if (kind == "weight_ih") return weights.weight_ih;
  if (kind == "weight_hh") return weights.weight_hh;
  if (kind == "bias_ih") return weights.bias_ih;
  if (kind == "bias_hh") return weights.bias_hh;
  throw std::invalid_argument("no such parameter: " + name);
}

template <class Real>
oracle::Arguments<double> oracle_arguments(Recurrent<Real>& network, const Inputs<Real>& in) {
  const RecurrentSpec& spec = network.spec();
  oracle::Arguments<double> arguments{.weights = {}, .x = widen(in.x), .state_in = widen(in.state_in)};
  arguments.weights.resize(spec.layers * spec.directions());
  for (const auto& parameter : network.parameters()) {
    find_array(arguments, spec, parameter.name).assign(parameter.value.begin(), parameter.value.end());
  }
  return arguments;
}

/// Returns the expected results of run(); with Terms::sizes, gradients are sums of the sizes of their terms.
template <class Real>
Outputs<double> expected(Recurrent<Real>& network, const Inputs<Real>& in,
                         oracle::Terms terms = oracle::Terms::signed_ones) {
  const RecurrentSpec& spec = network.spec();
  const oracle::Arguments<double> arguments = oracle_arguments(network, in);
  oracle::Results<double> results = oracle::forward(spec, in.batch(), arguments);
  oracle::Arguments<double> gradients =
      oracle::gradients(spec, in.batch(), arguments, widen(in.dy), widen(in.dstate_out), terms, widen(in.dstates));
  Outputs<double> out{.y = std::move(results.y),
                      .state_out = std::move(results.state_out),
                      .dx = gradients.x,
                      .dstate_in = gradients.state_in,
                      .states = in.every_state ? std::move(results.states) : std::vector<double>(),
                      .gradients = {}};
  for (const auto& parameter : network.parameters()) {
    out.gradients.emplace_back(parameter.name, find_array(gradients, spec, parameter.name));
  }
  return out;
}

/// State s of all layers, directions and rows: states differ in size, so each is compared by itself.
template <class Real>
std::vector<Real> one_state(const std::vector<Real>& states, Index count, Index s) {
  const std::size_t size = states.size() / static_cast<std::size_t>(count);
  return {states.begin() + s * size, states.begin() + (s + 1) * size};
}

/// The tolerance formula's terms for a network of this shape on a batch of this size.
struct Tolerances {
  double forward, backward, weights;
};

template <class Real>
Tolerances tolerances(const RecurrentSpec& spec, Index positions, Index steps, double logit) {
  const Index products = std::max(spec.input_size, spec.output_size()) + spec.hidden_size / spec.heads;
  const Work forward{.summed = products, .steps = steps * spec.layers, .logit = logit};
  Work backward = forward;
  backward.backward = true;
  backward.summed = find_cell(spec.cell).gates * products;
  Work weights = backward;
  weights.summed += positions;
  return {tolerance<Real>(forward), tolerance<Real>(backward), tolerance<Real>(weights)};
}

template <class Got, class Want>
void expect_close(const RecurrentSpec& spec, const Outputs<Got>& got, const Outputs<Want>& want, const Tolerances& t) {
  EXPECT_TRUE(close(got.y, want.y, t.forward, forward_terms)) << "y";
  EXPECT_TRUE(close(got.dx, want.dx, t.backward, backward_terms)) << "dx";
  EXPECT_TRUE(close(got.states, want.states, t.forward, forward_terms)) << "states";
  const Index states = find_cell(spec.cell).states;
  for (Index s = 0; s < states; ++s) {
    EXPECT_TRUE(
        close(one_state(got.state_out, states, s), one_state(want.state_out, states, s), t.forward, forward_terms))
        << "state " << s << " out";
    EXPECT_TRUE(
        close(one_state(got.dstate_in, states, s), one_state(want.dstate_in, states, s), t.backward, backward_terms))
        << "gradient of state " << s << " in";
  }
  ASSERT_EQ(got.gradients.size(), want.gradients.size());
  for (std::size_t i = 0; i < want.gradients.size(); ++i) {
    EXPECT_TRUE(close(got.gradients[i].second, want.gradients[i].second, t.weights, backward_terms))
        << "gradient of " << want.gradients[i].first;
  }
}

/// Expects the same bits in everything that belongs to a row. Gradients of weights are sums over rows and steps in an
/// order of their own.
template <class Real>
void expect_same_bits_in_rows(const Outputs<Real>& got, const Outputs<Real>& want) {
  EXPECT_TRUE(same_bits(got.y, want.y)) << "y";
  EXPECT_TRUE(same_bits(got.state_out, want.state_out)) << "state out";
  EXPECT_TRUE(same_bits(got.dx, want.dx)) << "dx";
  EXPECT_TRUE(same_bits(got.dstate_in, want.dstate_in)) << "gradient of state in";
}

template <class Real>
void expect_same_bits(const Outputs<Real>& got, const Outputs<Real>& want) {
  expect_same_bits_in_rows(got, want);
  ASSERT_EQ(got.gradients.size(), want.gradients.size());
  for (std::size_t i = 0; i < want.gradients.size(); ++i) {
    EXPECT_TRUE(same_bits(got.gradients[i].second, want.gradients[i].second))
        << "gradient of " << want.gradients[i].first;
  }
}

template <class Real>
Tolerances tolerances(const Recurrent<Real>& network, const Inputs<Real>& in, const Case& c) {
  return tolerances<Real>(network.spec(), oracle::position_count(in.batch()), in.steps, 2 * c.bias_scale);
}

/// Every way of running a cell that a caller can name.
inline std::vector<Execution> executions(const CellInfo& cell) {
  std::vector<Execution> all = {{}, {.algorithm = Algorithm::sequential}, {.exact = true}};
  if (cell.scan) all.push_back({.algorithm = Algorithm::scan});
  return all;
}

/// The check itself: one case, one cell, every way of running it, against the oracle.
template <class Real>
void check_cell(const CellInfo& cell, const Case& c) {
  if (!c.applies_to(cell)) return;
  Recurrent<Real> network = make_network<Real>(std::string(cell.name), c);
  const Inputs<Real> in = make_inputs(network, c);
  const Outputs<double> want = expected(network, in);
  for (const Execution& execution : executions(cell)) {
    SCOPED_TRACE(testing::Message() << cell.name << ", " << c.name << ", " << (sizeof(Real) == 4 ? "float" : "double")
                                    << ", " << to_string(execution.algorithm) << (execution.exact ? ", exact" : ""));
    expect_close(network.spec(), run(network, in, execution), want, tolerances(network, in, c));
  }
}

/// Sets weight_ih to the identity: W x is x.
template <class Real>
void project_by_identity(Recurrent<Real>& network) {
  auto& weight = network.parameters().front();
  std::ranges::fill(weight.value, Real(0));
  for (Index i = 0; i < weight.shape[0]; ++i) weight.value[static_cast<std::size_t>(i * (weight.shape[1] + 1))] = 1;
  network.weights_changed();
}

/// Parametrised by the names of the list of cells.
class CellTest : public testing::TestWithParam<std::string> {
 protected:
  std::string cell() const { return GetParam(); }
  const CellInfo& info() const { return find_cell(GetParam()); }
};

inline std::vector<std::string> cell_names() {
  std::vector<std::string> names;
  for (const CellInfo& cell : cells()) names.emplace_back(cell.name);
  return names;
}

}  // namespace penstock::test
