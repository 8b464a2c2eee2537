// Weights in 16 bits: the same as floats that bfloat16 has, to the bit; and inputs rounded too, within what that costs.

#include <bit>
#include <cstring>

#include "nn/check_cell.h"
#include "penstock/system.h"
#include "support/bf16.h"
#include "support/expect_error.h"

namespace penstock::test {
namespace {

class CellsInBf16 : public CellTest {};

/// Returns the network with its matrices rounded.
Recurrent<float> make_rounded_network(const std::string& cell, const Case& c) {
  Recurrent<float> network = make_network<float>(cell, c);
  for (auto& parameter : network.parameters()) {
    if (!parameter.name.starts_with("weight")) continue;
    for (float& x : parameter.value) x = rounded(x);
  }
  network.weights_changed();
  return network;
}

std::vector<Case> cases() {
  std::vector<Case> all = shape_cases();
  all.push_back(everything());
  all.push_back({.name = "heads", .input = 7, .hidden = 34, .heads = 2, .rows = 5, .steps = 6});
  // Wider than what is rounded in one go, and both sizes odd.
  all.push_back({.name = "wide", .input = 261, .hidden = 263, .rows = 3, .steps = 3});
  return all;
}

TEST_P(CellsInBf16, RoundedWeightsAreFloatsToTheBit) {
  for (const std::string& isa : system_info().isas) {
    select_isa(isa);
    for (const Case& c : cases()) {
      if (!c.applies_to(info())) continue;
      SCOPED_TRACE(testing::Message() << isa << ", " << c.name);
      Recurrent<float> network = make_network<float>(cell(), c);
      Recurrent<float> already = make_rounded_network(cell(), c);
      const Inputs<float> in = make_inputs(network, c);
      const Outputs<float> got = run(network, in, {.precision = Precision::bf16_weights});
      const Outputs<float> want = run(already, in);
      EXPECT_TRUE(same_bits(got.y, want.y)) << "y";
      EXPECT_TRUE(same_bits(got.state_out, want.state_out)) << "state out";
      expect_same_bits(run(already, in, {.precision = Precision::bf16_weights}), want);
    }
  }
  select_isa(system_info().isas.front());
}

/// A number and how far it may be wrong when whatever is multiplied is rounded to bfloat16 first.
struct Doubtful {
  double value = 0.0, error = 0.0;
  Doubtful(double x = 0.0, double e = 0.0) : value(x), error(e) {}  // NOLINT(google-explicit-constructor)

  /// The smallest distance from a kink so far, once the doubt is taken off.
  static inline double clearance = std::numeric_limits<double>::infinity();
};

double value(const Doubtful& x) { return x.value; }
Doubtful operator+(const Doubtful& a, const Doubtful& b) { return {a.value + b.value, a.error + b.error}; }
Doubtful operator-(const Doubtful& a, const Doubtful& b) { return {a.value - b.value, a.error + b.error}; }
Doubtful operator-(const Doubtful& x) { return {-x.value, x.error}; }
Doubtful& operator+=(Doubtful& a, const Doubtful& b) { return a = a + b; }
Doubtful operator*(const Doubtful& a, const Doubtful& b) {
  const double x = std::abs(a.value), y = std::abs(b.value), rounded = 0x1p-9;
  return {a.value * b.value, (x * (1 + rounded) + a.error) * (y * (1 + rounded) + b.error) - x * y};
}
Doubtful operator/(const Doubtful& a, const Doubtful& b) {
  const double x = std::abs(a.value), y = std::abs(b.value);
  return {a.value / b.value, y > b.error ? (x + a.error) / (y - b.error) - x / y : INFINITY};
}
Doubtful exp(const Doubtful& x) { return {std::exp(x.value), std::exp(x.value) * std::expm1(x.error)}; }
Doubtful log1p(const Doubtful& x) { return {std::log1p(x.value), x.error}; }  // of x >= 0
Doubtful tanh(const Doubtful& x) { return {std::tanh(x.value), x.error}; }
Doubtful maximum(const Doubtful& a, const Doubtful& b) {
  const Doubtful& larger = a.value >= b.value ? a : b;
  const double distance = std::abs(a.value - b.value) - a.error - b.error;
  Doubtful::clearance = std::min(Doubtful::clearance, distance);
  return distance > 0 ? larger : Doubtful(larger.value, std::max(a.error, b.error));
}
Doubtful dot(const Doubtful* a, const Doubtful* b, std::size_t count) {
  Doubtful sum;
  for (std::size_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}
const std::vector<Doubtful>& consecutive(const std::vector<Doubtful>& values) { return values; }

/// Keeps rectified units away from the kink: by their biases, one in eight is always on and the others are always off.
/// With few units on, the recurrence shrinks.
void keep_from_kink(Recurrent<float>& network) {
  for (auto& parameter : network.parameters()) {
    if (!parameter.name.starts_with("bias_ih")) continue;
    for (std::size_t i = 0; i < parameter.value.size(); ++i) parameter.value[i] = i % 8 == 0 ? 12.0f : -24.0f;
  }
  network.weights_changed();
}

/// How far every argument of a rectifier stays from 0, whatever roundings do.
double clearance(Recurrent<float>& network, const Inputs<float>& in) {
  const oracle::Arguments<double> arguments = oracle_arguments(network, in);
  oracle::Arguments<Doubtful> doubtful;
  oracle::for_each_array(doubtful, arguments, [](std::vector<Doubtful>& to, const std::vector<double>& from) {
    for (const double x : from) to.emplace_back(x);
  });
  Doubtful::clearance = std::numeric_limits<double>::infinity();
  oracle::forward(network.spec(), in.batch(), doubtful);
  return Doubtful::clearance;
}

TEST_P(CellsInBf16, RoundedProductsAreAsGoodAsTheirInputs) {
  for (const Case& c : cases()) {
    if (!c.applies_to(info())) continue;
    SCOPED_TRACE(c.name);
    Recurrent<float> network = make_rounded_network(cell(), c);
    const bool rectified = cell() == "elman-relu";
    if (rectified) keep_from_kink(network);
    const Inputs<float> in = make_inputs(network, c);
    if (rectified) {
      ASSERT_GT(clearance(network, in), 0.0) << "a unit may lie on either side of its kink";
    }
    const Outputs<double> want = expected(network, in);
    // An operand is wrong by 2^-9 of itself where floats are by 2^-24: the formula for another epsilon. Gradients of
    // gates are operands too, in the backward pass.
    Tolerances t = tolerances(network, in, c);
    for (double* each : {&t.forward, &t.backward, &t.weights}) *each *= 0x1p15;
    expect_close(network.spec(), run(network, in, {.precision = Precision::bf16}), want, t);
  }
}

TEST_P(CellsInBf16, GradientsAreRepeatedToTheBitInBothModes) {
  for (const Case& c : cases()) {
    if (!c.applies_to(info())) continue;
    SCOPED_TRACE(c.name);
    Recurrent<float> network = make_network<float>(cell(), c);
    const Inputs<float> in = make_inputs(network, c);
    const Execution execution{.precision = Precision::bf16};
    expect_same_bits(run(network, in, execution), run(network, in, execution));
    // In between, another kind of gradients: panels of one must not be taken for those of the other.
    const Outputs<float> exact = run(network, in, {.exact = true, .precision = Precision::bf16});
    expect_same_bits(exact, run(network, in, {.exact = true, .precision = Precision::bf16}));
  }
}

TEST_P(CellsInBf16, RoundedInputsLoseNothingMore) {
  // Scan cells multiply nothing but the input: where it is rounded beforehand, only sums are left to round.
  if (!info().scan) GTEST_SKIP() << "multiplies its state too";
  for (const Case& c : cases()) {
    if (c.layers > 1 || !c.applies_to(info())) continue;
    SCOPED_TRACE(c.name);
    Recurrent<float> network = make_rounded_network(cell(), c);
    Inputs<float> in = make_inputs(network, c);
    for (float& x : in.x) x = rounded(x);
    Tolerances t = tolerances(network, in, c);
    for (double* each : {&t.backward, &t.weights}) *each *= 0x1p15;  // gradients of gates are rounded all the same
    expect_close(network.spec(), run(network, in, {.precision = Precision::bf16}), expected(network, in), t);
  }
}

TEST_P(CellsInBf16, StepsAndRowsMeetTheSequenceToTheBit) {
  const Case c{.name = "steps", .input = 7, .hidden = 33, .layers = 2, .rows = 5, .steps = 9};
  Recurrent<float> network = make_network<float>(cell(), c);
  const Inputs<float> in = make_inputs(network, c);
  for (const Precision precision : {Precision::bf16_weights, Precision::bf16}) {
    SCOPED_TRACE(to_string(precision));
    const Execution execution{.exact = true, .precision = precision};
    const Outputs<float> want = run(network, in, execution);
    for (Index b = 0; b < c.rows; ++b) {
      std::vector<float> state(static_cast<std::size_t>(network.state_size())), y(static_cast<std::size_t>(c.hidden));
      for (Index k = 0; k < network.state_size() / c.hidden; ++k) {
        std::copy_n(&in.state_in[(k * c.rows + b) * c.hidden], c.hidden, &state[k * c.hidden]);
      }
      for (Index t = 0; t < c.steps; ++t) {
        network.step(1, &in.x[(b * c.steps + t) * c.input], y.data(), state.data(), execution);
        const auto from = want.y.begin() + (b * c.steps + t) * c.hidden;
        ASSERT_TRUE(same_bits(y, std::vector<float>(from, from + c.hidden))) << "row " << b << ", step " << t;
      }
    }
  }
}

TEST_P(CellsInBf16, PiecesAndChunksMakeNoDifference) {
  // Pieces of several rows and of parts of a row, odd everywhere; and chunks on several threads.
  if (!info().scan) GTEST_SKIP() << "has neither";
  for (const Case& c : {Case{.name = "rows", .input = 35, .hidden = 49, .rows = 37, .steps = 61},
                        Case{.name = "row", .input = 3, .hidden = 17, .rows = 1, .steps = 4133}}) {
    for (const Algorithm algorithm : {Algorithm::sequential, Algorithm::scan}) {
      SCOPED_TRACE(testing::Message() << c.name << ", " << (algorithm == Algorithm::scan ? "chunks" : "pieces"));
      Recurrent<float> network = make_rounded_network(cell(), c);
      const Inputs<float> in = make_inputs(network, c);
      Tolerances t = tolerances(network, in, c);
      for (double* each : {&t.forward, &t.backward, &t.weights}) *each *= 0x1p15;
      const Execution execution{.threads = 2, .algorithm = algorithm, .precision = Precision::bf16};
      expect_close(network.spec(), run(network, in, execution), expected(network, in), t);
    }
  }
}

double length(const std::vector<double>& values) {
  double sum = 0.0;
  for (const double x : values) sum += x * x;
  return std::sqrt(sum);
}

std::vector<double> difference(const std::vector<float>& got, const std::vector<double>& want) {
  std::vector<double> result;
  for (std::size_t i = 0; i < want.size(); ++i) result.push_back(got[i] - want[i]);
  return result;
}

TEST_P(CellsInBf16, RoundedGradientsAreWrongByTheirRoundings) {
  // A gradient is a sum over all ways from the loss to an argument. On each of them, three operands are rounded, each
  // by 2^-9 of itself at most: what is multiplied with a gate's gradient, that gradient, and the gate, which the
  // backward pass reads rounded. A gate of size l that is wrong by 2^-9 l moves the slopes and shares that are formed
  // of it by as much of themselves, at one step for its own gradient, and for the others at as many steps as are
  // remembered, for which log2(1 + T) stands in tolerances. Measured against the sizes of its terms, nothing is lost
  // where they cancel.
  if (!info().scan || info().has_kink) GTEST_SKIP() << "not a scan, or with a kink";
  for (const Case& c : cases()) {
    if (c.layers > 1 || !c.applies_to(info())) continue;
    SCOPED_TRACE(c.name);
    Recurrent<float> network = make_rounded_network(cell(), c);
    const Inputs<float> in = make_inputs(network, c);
    const Outputs<float> got = run(network, in, {.precision = Precision::bf16});
    const Outputs<double> want = expected(network, in), sizes = expected(network, in, oracle::Terms::sizes);
    const double logit = std::max(1.0, 2 * c.bias_scale);
    const double bound = (3 + logit * std::log2(1.0 + static_cast<double>(c.steps))) * 0x1p-9;
    EXPECT_LE(length(difference(got.dx, want.dx)), bound * length(sizes.dx));
    for (std::size_t i = 0; i < want.gradients.size(); ++i) {
      const auto& [name, gradient] = want.gradients[i];
      EXPECT_LE(length(difference(got.gradients[i].second, gradient)), bound * length(sizes.gradients[i].second))
          << name;
    }
  }
}

TEST_P(CellsInBf16, TapesAreReadAsTheyWereWritten) {
  const Case c{.name = "tape", .rows = 2, .steps = 3};
  Recurrent<float> network = make_network<float>(cell(), c);
  const Inputs<float> in = make_inputs(network, c);
  std::vector<float> y(static_cast<std::size_t>(c.rows * c.steps * c.hidden)), dx(in.x.size());
  const Batch batch{.rows = c.rows, .steps = c.steps};
  const auto view = [&](auto& values, Index channels) {
    return SequenceView<std::remove_reference_t<decltype(values[0])>>::batch_first(values.data(), c.steps, channels);
  };
  RecurrentTape<float> tape;
  network.forward(batch, view(in.x, c.input), view(y, c.hidden), nullptr, nullptr, &tape, {});
  const auto refusal = [&](const Execution& execution) -> std::string {
    try {
      network.backward(batch, view(in.x, c.input), view(std::as_const(in.dy), c.hidden), nullptr, view(dx, c.input),
                       nullptr, tape, execution);
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  };
  EXPECT_EQ(refusal({}), "");
  EXPECT_EQ(refusal({.precision = Precision::bf16_weights}), "");
  EXPECT_EQ(refusal({.exact = true, .precision = Precision::bf16}), "");
  // Where the chip multiplies bfloat16, scan cells keep it.
  const std::string answer = refusal({.precision = Precision::bf16});
  if (!info().scan || !answer.empty()) {
    EXPECT_EQ(answer, !info().scan ? ""
                                   : "tape must hold a forward pass in the precision of the backward pass, exact "
                                     "or not as it is: of " +
                                         cell() + " it holds floats");
  }
}

TEST_P(CellsInBf16, NanAndInfinityGetThrough) {
  const Case c{.name = "nan", .input = 3, .hidden = 5, .rows = 2, .steps = 2, .state = false};
  for (const Precision precision : {Precision::bf16_weights, Precision::bf16}) {
    SCOPED_TRACE(to_string(precision));
    Recurrent<float> network = make_network<float>(cell(), c);
    Inputs<float> in = make_inputs(network, c);
    in.x[0] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(std::isnan(run(network, in, {.precision = precision}).y[0]));
    in.x[0] = 1.0f;
    // The NaN of which bfloat16 would keep no bit that tells it from infinity.
    network.parameters()[0].value[0] = std::bit_cast<float>(0x7f800001u);
    network.weights_changed();
    EXPECT_TRUE(std::isnan(run(network, in, {.precision = precision}).y[0]));
  }
}

TEST_P(CellsInBf16, DoubleHasFullPrecisionOnly) {
  const Case c{.name = "double", .rows = 1, .steps = 2};
  Recurrent<double> network = make_network<double>(cell(), c);
  const Inputs<double> in = make_inputs(network, c);
  expect_error(ErrorCode::unsupported, "precision must be full for layers in double, not bf16",
               [&] { run(network, in, {.precision = Precision::bf16}); });
}

INSTANTIATE_TEST_SUITE_P(Each, CellsInBf16, testing::ValuesIn(cell_names()), test_name);

}  // namespace
}  // namespace penstock::test
