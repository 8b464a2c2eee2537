// The oracle is what everything else is compared with, so it is held against finite differences, against forms of
// the equations that it does not use, and against itself where two routes must meet.

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numeric>

#include "base/random.h"
#include "oracle/network.h"
#include "support/names.h"

namespace {

using oracle::Arguments;
using oracle::Var;
using penstock::Batch;
using penstock::Bias;
using penstock::Direction;
using penstock::Index;
using penstock::Random;
using penstock::RecurrentSpec;

// ---- The tape

struct Operation {
  const char* name;
  std::function<Var(const Var&, const Var&)> apply;
};

std::vector<Operation> operations() {
  return {
      {"a + b", [](const Var& a, const Var& b) { return a + b; }},
      {"a - b", [](const Var& a, const Var& b) { return a - b; }},
      {"a * b", [](const Var& a, const Var& b) { return a * b; }},
      {"a / b", [](const Var& a, const Var& b) { return a / b; }},
      {"-a", [](const Var& a, const Var&) { return -a; }},
      {"exp", [](const Var& a, const Var&) { return exp(a); }},
      {"log", [](const Var&, const Var& b) { return log(b); }},
      {"log1p", [](const Var&, const Var& b) { return log1p(b); }},
      {"tanh", [](const Var& a, const Var&) { return tanh(a); }},
      {"max", [](const Var& a, const Var& b) { return oracle::maximum(a, b); }},
      {"sigmoid", [](const Var& a, const Var&) { return oracle::sigmoid(a); }},
      {"log sigmoid", [](const Var& a, const Var&) { return oracle::log_sigmoid(a); }},
      {"g", [](const Var& a, const Var&) { return oracle::positive(a); }},
      {"one value used twice", [](const Var& a, const Var& b) { return (a * b + a) * a; }},
      {"constants", [](const Var& a, const Var& b) { return (2.0 - a) * 3.0 / b; }},
  };
}

TEST(Tape, DerivativesEqualFiniteDifferences) {
  const double h = 1e-6;
  for (const Operation& operation : operations()) {
    for (const auto& [a, b] : {std::pair{-1.3, 0.7}, {0.4, 2.5}, {2.0, 1.1}}) {
      oracle::Tape tape;
      const Var va = tape.leaf(a), vb = tape.leaf(b);
      const std::vector<double> adjoint = tape.sweep(operation.apply(va, vb));
      const auto at = [&](double x, double y) { return operation.apply(x, y).value(); };
      EXPECT_NEAR(adjoint[va.node()], (at(a + h, b) - at(a - h, b)) / (2 * h), 1e-8) << operation.name << " by a";
      EXPECT_NEAR(adjoint[vb.node()], (at(a, b + h) - at(a, b - h)) / (2 * h), 1e-8) << operation.name << " by b";
    }
  }
}

TEST(Tape, OfEqualsTheFirstIsTheMaximum) {
  oracle::Tape tape;
  const Var a = tape.leaf(1.0), b = tape.leaf(1.0);
  const std::vector<double> adjoint = tape.sweep(oracle::maximum(a, b));
  EXPECT_EQ(adjoint[a.node()], 1.0);
  EXPECT_EQ(adjoint[b.node()], 0.0);
}

TEST(Tape, LimitedDerivativesAreCutWhereTheyPass) {
  oracle::Tape tape;
  const Var a = tape.leaf(0.5);
  const Var b = oracle::limited(3.0 * a, 0.25), c = oracle::limited(a * a, 0.25);
  EXPECT_EQ(b.value(), 1.5);
  // The derivative by b is cut to a quarter, from either side; the 0.2 of c is within the limit.
  EXPECT_DOUBLE_EQ(tape.sweep(2.0 * b + 0.2 * c)[a.node()], 3 * 0.25 + 0.2 * 2 * 0.5);
  EXPECT_DOUBLE_EQ(tape.sweep(-2.0 * b + 0.2 * c)[a.node()], -3 * 0.25 + 0.2 * 2 * 0.5);
  EXPECT_DOUBLE_EQ(tape.sweep(2.0 * oracle::limited(a, 0.0))[a.node()], 2.0);
}

/// By hand, for a single unit.
TEST(OracleNetworkOfOne, LimitsWhatAStepPassesToTheOneBefore) {
  const double w = 0.7, r = 2.5, limit = 0.3;
  const std::vector<double> x = {0.1, -0.2, 0.15, 0.05}, dy = {1, -2, 0.5, 1.5};
  const RecurrentSpec spec{
      .cell = "elman", .input_size = 1, .hidden_size = 1, .bias = Bias::none, .gradient_clip = limit};
  const Batch batch{.rows = 1, .steps = 4};
  Arguments<double> arguments;
  arguments.weights = {{{w}, {r}, {}, {}}};
  arguments.x = x, arguments.state_in = {0.2};
  std::vector<double> h = {0.2};
  for (const double input : x) h.push_back(std::tanh(w * input + r * h.back()));
  double passed = 0.9, cut = 0;  // what came behind the last step is not limited
  const Arguments<double> found = oracle::gradients(spec, batch, arguments, dy, {passed});
  for (std::size_t t = 4; t-- > 0;) {
    const double gate = (passed + dy[t]) * (1 - h[t + 1] * h[t + 1]);
    EXPECT_NEAR(found.x[t], gate * w, 1e-15) << "step " << t;
    passed = std::clamp(gate * r, -limit, limit);
    cut += passed != gate * r;
  }
  EXPECT_NEAR(found.state_in[0], passed, 1e-15);
  EXPECT_GE(cut, 2);
}

TEST(Tape, DotProductsDifferentiateAsTheirTermsDo) {
  constexpr std::size_t count = 19;  // past the partial sums
  Random random(1);
  std::vector<double> a(count), b(count);
  for (double& x : a) x = random.uniform(-1, 1);
  for (double& x : b) x = random.uniform(-1, 1);
  oracle::Tape tape;
  std::vector<Var> va, vb;
  for (double x : a) va.push_back(tape.leaf(x));
  for (double x : b) vb.push_back(tape.leaf(x));
  const std::vector<Var> mixed = {va[1], va[0], 3.0};  // no run of nodes
  const Var whole = dot(va.data(), vb.data(), count), some = dot(mixed.data(), vb.data(), mixed.size());
  const Var square = dot(consecutive(mixed).data(), consecutive(mixed).data(), mixed.size());
  EXPECT_NEAR(whole.value(), std::inner_product(a.begin(), a.end(), b.begin(), 0.0), 1e-14);
  EXPECT_NEAR(some.value(), a[1] * b[0] + a[0] * b[1] + 3 * b[2], 1e-15);
  EXPECT_NEAR(square.value(), a[1] * a[1] + a[0] * a[0] + 9, 1e-14);
  const std::vector<double> adjoint = tape.sweep(whole + some * 2.0 + square);
  for (std::size_t i = 0; i < count; ++i) {
    const double by_some = i == 0 ? b[1] : i == 1 ? b[0] : 0.0;
    const double by_square = i < 2 ? 2 * a[i] : 0.0;
    EXPECT_NEAR(adjoint[va[i].node()], b[i] + 2 * by_some + by_square, 1e-14) << i;
    EXPECT_NEAR(adjoint[vb[i].node()], a[i] + (i < 3 ? 2 * mixed[i].value() : 0.0), 1e-14) << i;
  }
}

// ---- The equations, in one unit at one step

/// next states of a cell with one unit, gate arguments `wx`, and R_g v = r[g] * v.
std::vector<double> step(const std::string& cell, const std::vector<double>& wx, const std::vector<double>& r,
                         const std::vector<double>& prev) {
  oracle::Inputs<double> in;
  for (double x : wx) in.wx.push_back({x});
  in.recurrent = [&](Index gate, const std::vector<double>& v) { return std::vector<double>{r[gate] * v[0]}; };
  oracle::State<double> state;
  for (double s : prev) state.push_back({s});
  std::vector<double> next;
  for (const auto& s : oracle::find_cell<double>(cell).step(in, state)) next.push_back(s[0]);
  return next;
}

double logistic(double x) { return 1.0 / (1.0 + std::exp(-x)); }

TEST(OracleCells, Elman) {
  EXPECT_NEAR(step("elman", {0.3}, {0.5}, {0.8})[0], std::tanh(0.7), 1e-15);
  EXPECT_NEAR(step("elman-relu", {0.3}, {0.5}, {0.8})[0], 0.7, 1e-15);
  EXPECT_EQ(step("elman-relu", {-0.3}, {0.5}, {0.4})[0], 0.0);
}

TEST(OracleCells, GruKeepsItsStateWhenTheUpdateGateIsOne) {
  for (const char* cell : {"gru", "gru-before"}) {
    EXPECT_NEAR(step(cell, {0.1, 40.0, 0.7}, {0.2, 0.3, 0.4}, {0.6})[0], 0.6, 1e-15) << cell;
    const double replaced = step(cell, {0.1, -40.0, 0.7}, {0.2, 0.3, 0.4}, {0.6})[0];
    EXPECT_NEAR(replaced, std::tanh(0.7 + logistic(0.1 + 0.2 * 0.6) * 0.4 * 0.6), 1e-15) << cell;
  }
}

TEST(OracleCells, GruResetsBeforeOrAfterTheProduct) {
  // With a bias in the recurrent product the two differ: r (R h + b) against R (r h) + b.
  oracle::Inputs<double> in;
  in.wx = {{0.0}, {-40.0}, {0.0}};
  in.recurrent = [](Index gate, const std::vector<double>& v) {
    return std::vector<double>{gate == 2 ? 0.4 * v[0] + 0.3 : 0.0};
  };
  EXPECT_NEAR(oracle::gru<double>(in, {{0.6}})[0][0], std::tanh(0.5 * (0.24 + 0.3)), 1e-15);
  EXPECT_NEAR(oracle::gru_before<double>(in, {{0.6}})[0][0], std::tanh(0.12 + 0.3), 1e-15);
}

TEST(OracleCells, LstmGatesAreInputForgetCandidateOutput) {
  const std::vector<double> open_input = step("lstm", {40, -40, 0.5, 40}, {0, 0, 0, 0}, {0.1, 0.9});
  EXPECT_NEAR(open_input[1], std::tanh(0.5), 1e-15);
  EXPECT_NEAR(open_input[0], std::tanh(std::tanh(0.5)), 1e-15);
  EXPECT_NEAR(step("lstm", {-40, 40, 0.5, -40}, {0, 0, 0, 0}, {0.1, 0.9})[1], 0.9, 1e-15);
  EXPECT_NEAR(step("lstm", {-40, 40, 0.5, -40}, {0, 0, 0, 0}, {0.1, 0.9})[0], 0.0, 1e-15);
}

TEST(OracleCells, SlstmEqualsItsFormWithoutStabiliser) {
  // c = sigmoid(f) c + exp(i) tanh(z), n = sigmoid(f) n + exp(i), h = sigmoid(o) c / n, from c = n = 0.
  Random random(1);
  std::vector<double> state = {0, 0, 0, 0};
  double c = 0, n = 0;
  for (int t = 0; t < 20; ++t) {
    const double i = random.uniform(-3, 3), f = random.uniform(-3, 3), z = random.uniform(-3, 3);
    const double o = random.uniform(-3, 3);
    state = step("slstm", {i, f, z, o}, {0, 0, 0, 0}, state);
    c = logistic(f) * c + std::exp(i) * std::tanh(z);
    n = logistic(f) * n + std::exp(i);
    EXPECT_NEAR(state[0], logistic(o) * c / n, 1e-14);
    EXPECT_NEAR(state[1] * std::exp(state[3]), c, 1e-13 * std::abs(c) + 1e-13);
    EXPECT_NEAR(state[2] * std::exp(state[3]), n, 1e-13 * n);
  }
}

TEST(OracleCells, SlstmStartsWhereTheNormaliserIsZero) {
  const std::vector<double> next = step("slstm", {-3, 2, 0.5, 0}, {0, 0, 0, 0}, {0.3, 7.0, 0.0, 9.0});
  EXPECT_EQ(next[3], -3.0);
  EXPECT_NEAR(next[1], std::tanh(0.5), 1e-15);
  EXPECT_EQ(next[2], 1.0);
}

TEST(OracleCells, MinGru) {
  const double z = logistic(0.7);
  EXPECT_NEAR(step("mingru", {0.7, -1.5}, {}, {0.4})[0], (1 - z) * 0.4 + z * -1.5, 1e-15);
  EXPECT_NEAR(step("mingru-log", {0.7, -1.5}, {}, {0.4})[0], (1 - z) * 0.4 + z * logistic(-1.5), 1e-15);
  EXPECT_NEAR(step("mingru-log", {0.7, 1.5}, {}, {0.4})[0], (1 - z) * 0.4 + z * 2.0, 1e-15);
}

TEST(OracleCells, MinLstmNormalisesItsGates) {
  const double f = logistic(0.7), i = logistic(-1.2);
  EXPECT_NEAR(step("minlstm", {0.7, -1.2, -1.5}, {}, {0.4})[0], (f * 0.4 + i * -1.5) / (f + i), 1e-15);
  EXPECT_NEAR(step("minlstm-log", {0.7, -1.2, -1.5}, {}, {0.4})[0], (f * 0.4 + i * logistic(-1.5)) / (f + i), 1e-15);
}

TEST(OracleCells, MinLstmHoldsWhereItsGatesUnderflow) {
  for (const double size : {50.0, 900.0}) {
    // Both gates shut: f / i -> exp(f~ - i~).
    EXPECT_NEAR(step("minlstm", {-size, -size + 1, 2.0}, {}, {1.0})[0], 1.0 + logistic(1.0), 1e-13) << size;
    EXPECT_NEAR(step("minlstm", {size, size, 2.0}, {}, {1.0})[0], 1.5, 1e-13) << size;
    EXPECT_NEAR(step("minlstm", {size, -size, 2.0}, {}, {1.0})[0], 1.0, 1e-13) << size;
  }
}

// ---- Whole networks

std::vector<double> draw(Random& random, Index count, double low = -1.0, double high = 1.0) {
  std::vector<double> values(count);
  for (double& x : values) x = random.uniform(low, high);
  return values;
}

/// Random arguments for a network; normalisers of sLSTM (state 2) are positive, as a running cell leaves them.
Arguments<double> draw_arguments(const RecurrentSpec& spec, const Batch& batch, Random& random) {
  const auto& cell = oracle::find_cell<double>(spec.cell);
  const Index rows = cell.gates * spec.hidden_size, d = spec.hidden_size / spec.heads;
  Arguments<double> arguments;
  for (Index k = 0; k < spec.layers * spec.directions(); ++k) {
    const Index inputs = k < spec.directions() ? spec.input_size : spec.output_size();
    arguments.weights.push_back({draw(random, rows * inputs), draw(random, cell.scan ? 0 : rows * d),
                                 draw(random, rows), draw(random, cell.scan ? 0 : rows)});
  }
  arguments.x = draw(random, oracle::position_count(batch) * spec.input_size);
  const Index values = spec.layers * spec.directions() * batch.rows * spec.hidden_size;
  for (Index s = 0; s < cell.states; ++s) {
    const std::vector<double> state = draw(random, values, s == 2 ? 0.5 : -1.0);
    arguments.state_in.insert(arguments.state_in.end(), state.begin(), state.end());
  }
  return arguments;
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

class OracleNetwork : public testing::TestWithParam<std::string> {};

TEST_P(OracleNetwork, GradientsEqualFiniteDifferences) {
  const std::vector<Index> lengths = {4, 0, 3};
  const std::vector<std::uint8_t> reset = {0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0};
  const Batch batch{.rows = 3, .steps = 4, .lengths = lengths.data(), .reset = reset.data()};
  RecurrentSpec spec{.cell = GetParam(), .input_size = 2, .hidden_size = 4, .layers = 2};
  spec.heads = oracle::find_cell<double>(spec.cell).scan ? 1 : 2;
  spec.direction = Direction::bidirectional;
  Random random(7);
  Arguments<double> arguments = draw_arguments(spec, batch, random);
  const auto results = oracle::forward(spec, batch, arguments);
  const std::vector<double> dy = draw(random, static_cast<Index>(results.y.size()));
  const std::vector<double> dstate = draw(random, static_cast<Index>(results.state_out.size()));
  Arguments<double> gradients = oracle::gradients(spec, batch, arguments, dy, dstate);

  const auto loss = [&] {
    const auto r = oracle::forward(spec, batch, arguments);
    return dot(r.y, dy) + dot(r.state_out, dstate);
  };
  int checked = 0;
  const auto check = [&](std::vector<double>& values, const std::vector<double>& gradient) {
    ASSERT_EQ(values.size(), gradient.size());
    for (std::size_t i = 0; i < values.size(); i += 1 + values.size() / 7, ++checked) {
      const double h = 1e-6, x = values[i];
      values[i] = x + h;
      const double above = loss();
      values[i] = x - h;
      const double below = loss();
      values[i] = x;
      EXPECT_NEAR(gradient[i], (above - below) / (2 * h), 1e-7) << "value " << i;
    }
  };
  oracle::for_each_array(arguments, gradients, check);
  EXPECT_GT(checked, 20);
}

TEST_P(OracleNetwork, RowsAreIndependentAndFormsOfRowsAgree) {
  const std::vector<Index> lengths = {5, 0, 3}, cu_seqlens = {0, 5, 5, 8};
  const Batch padded{.rows = 3, .steps = 5, .lengths = lengths.data()};
  const Batch packed{.rows = 3, .steps = 5, .cu_seqlens = cu_seqlens.data()};
  const RecurrentSpec spec{
      .cell = GetParam(), .input_size = 2, .hidden_size = 3, .direction = Direction::bidirectional};
  Random random(3);
  Arguments<double> arguments = draw_arguments(spec, padded, random);
  const auto from_padded = oracle::forward(spec, padded, arguments);
  auto& x = arguments.x;  // the same steps without the padding
  x.erase(x.begin() + 26, x.end());
  x.erase(x.begin() + 10, x.begin() + 20);
  const auto from_packed = oracle::forward(spec, packed, arguments);
  EXPECT_EQ(from_padded.state_out, from_packed.state_out);
  std::vector<double> valid(from_padded.y.begin(), from_padded.y.begin() + 30);
  valid.insert(valid.end(), from_padded.y.begin() + 60, from_padded.y.begin() + 78);
  EXPECT_EQ(valid, from_packed.y);
  for (std::size_t i = 30; i < 60; ++i) EXPECT_EQ(from_padded.y[i], 0.0);
}

TEST_P(OracleNetwork, ReverseIsForwardOnTheMirroredSequence) {
  const Batch batch{.rows = 1, .steps = 6};
  RecurrentSpec spec{.cell = GetParam(), .input_size = 1, .hidden_size = 3};
  Random random(4);
  Arguments<double> arguments = draw_arguments(spec, batch, random);
  const auto forward = oracle::forward(spec, batch, arguments);
  std::reverse(arguments.x.begin(), arguments.x.end());
  spec.direction = Direction::reverse;
  const auto reverse = oracle::forward(spec, batch, arguments);
  EXPECT_EQ(forward.state_out, reverse.state_out);
  for (Index t = 0; t < 6; ++t) {
    for (Index j = 0; j < 3; ++j) EXPECT_EQ(forward.y[t * 3 + j], reverse.y[(5 - t) * 3 + j]);
  }
}

TEST_P(OracleNetwork, AResetStartsANewSequence) {
  const std::vector<std::uint8_t> reset = {0, 0, 1, 0, 0};
  const std::vector<Index> cu_seqlens = {0, 2, 5};
  const Batch whole{.rows = 1, .steps = 5, .reset = reset.data()};
  const Batch parts{.rows = 2, .steps = 3, .cu_seqlens = cu_seqlens.data()};
  const RecurrentSpec spec{.cell = GetParam(), .input_size = 2, .hidden_size = 3};
  Random random(5);
  Arguments<double> arguments = draw_arguments(spec, whole, random);
  arguments.state_in.clear();
  EXPECT_EQ(oracle::forward(spec, whole, arguments).y, oracle::forward(spec, parts, arguments).y);
}

TEST_P(OracleNetwork, PiecesGiveWhatTheWholeGives) {
  const Batch batch{.rows = 1, .steps = 7};
  const RecurrentSpec spec{.cell = GetParam(), .input_size = 3, .hidden_size = 9};
  Random random(6);
  const Arguments<double> arguments = draw_arguments(spec, batch, random);
  const std::vector<double> dy = draw(random, 7 * 9);
  const auto whole = oracle::forward(spec, batch, arguments);
  Arguments<double> want = oracle::gradients(spec, batch, arguments, dy, {});
  for (const Index piece : {1, 3, 7, 100}) {
    oracle::Passes got = oracle::in_pieces(spec, 7, arguments, dy, piece);
    EXPECT_EQ(got.results.y, whole.y);
    EXPECT_EQ(got.results.state_out, whole.state_out);
    oracle::for_each_array(got.gradients, want, [&](const std::vector<double>& a, const std::vector<double>& b) {
      ASSERT_EQ(a.size(), b.size());
      for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-12) << piece;
    });
  }
}

std::vector<std::string> names() {
  std::vector<std::string> names;
  for (const auto& cell : oracle::cells<double>()) names.push_back(cell.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Cells, OracleNetwork, testing::ValuesIn(names()), penstock::test::test_name);

}  // namespace
