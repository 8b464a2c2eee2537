// Weights in 16 bits: the same as floats that bfloat16 has, to the bit; and inputs rounded too, within what that costs.

#include <bit>
#include <cstring>

#include "nn/check_cell.h"
#include "penstock/system.h"
#include "support/expect_error.h"

namespace penstock::test {
namespace {

class CellsInBf16 : public CellTest {};

/// To the nearest bfloat16, ties to even, by arithmetic alone: 8 bits of precision are left.
float rounded(float x) {
  if (x == 0.0f || !std::isfinite(x)) return x;
  int exponent = 0;
  const double mantissa = std::frexp(double{x}, &exponent);  // in [0.5, 1)
  return static_cast<float>(std::ldexp(std::nearbyint(std::ldexp(mantissa, 8)), exponent - 8));
}

/// The same network with its matrices rounded.
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

TEST_P(CellsInBf16, RoundedProductsAreAsGoodAsTheirInputs) {
  for (const Case& c : cases()) {
    if (!c.applies_to(info())) continue;
    SCOPED_TRACE(c.name);
    Recurrent<float> network = make_rounded_network(cell(), c);
    const Inputs<float> in = make_inputs(network, c);
    const Outputs<double> want = expected(network, in);
    // An operand is wrong by 2^-9 of itself where floats are by 2^-24: the formula for another epsilon. Gradients of
    // gates are operands too, on the way back.
    Tolerances t = tolerances(network, in, c);
    for (double* each : {&t.forward, &t.backward, &t.weights}) *each *= 0x1p15;
    // On which side of its kink a unit lies is anybody's guess within that error, and decides over its gradient.
    if (cell() == "elman-relu") t.backward = t.weights = std::numeric_limits<double>::infinity();
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

/// The length of a difference as a share of the length of what was wanted.
double relative_distance(const std::vector<float>& got, const std::vector<double>& want) {
  double difference = 0.0, length = 0.0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    difference += (got[i] - want[i]) * (got[i] - want[i]);
    length += want[i] * want[i];
  }
  return length == 0.0 ? std::sqrt(difference) : std::sqrt(difference / length);
}

TEST_P(CellsInBf16, RoundedGradientsAreWrongByTheirRoundings) {
  // The sums of gates, their gradients and what those are multiplied with: each is wrong by 2^-9 of itself at most, and
  // so is the state that comes of them. On which side of its kink a positive candidate lies is decided anew.
  constexpr double bound = 4 * 0x1p-9;
  if (!info().scan || cell().ends_with("-log")) GTEST_SKIP() << "not a scan, or with a kink";
  for (const Case& c : cases()) {
    if (c.layers > 1 || !c.applies_to(info())) continue;
    SCOPED_TRACE(c.name);
    Recurrent<float> network = make_rounded_network(cell(), c);
    const Inputs<float> in = make_inputs(network, c);
    const Outputs<float> got = run(network, in, {.precision = Precision::bf16});
    const Outputs<double> want = expected(network, in);
    EXPECT_LE(relative_distance(got.dx, want.dx), bound);
    for (std::size_t i = 0; i < want.gradients.size(); ++i) {
      EXPECT_LE(relative_distance(got.gradients[i].second, want.gradients[i].second), bound) << want.gradients[i].first;
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
