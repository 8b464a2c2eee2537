// Initial weights: each choice does what its paper says.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "nn/model/model_impl.h"
#include "penstock/cell.h"
#include "penstock/initial_weights.h"
#include "support/expect_error.h"

namespace penstock {
namespace {

using test::expect_error;

DataDescription numbers() {
  DataDescription data;
  data.task = Task::forecast;
  data.inputs = {{"a", 0.0, 1.0}};
  data.targets = {{"a", 0.0, 1.0}};
  return data;
}

std::span<float> value(Model& model, const std::string& name) {
  auto& parameters = *model.impl().parameters;
  return parameters.value(*parameters.layout().find(name));
}

TEST(InitialWeights, OrthogonalMatricesAreSoForEachHeadAndGate) {
  for (const auto& [cell, gates] : {std::pair("elman", 1), std::pair("gru", 3), std::pair("lstm", 4)}) {
    for (const Index heads : {1, 3}) {
      constexpr Index hidden = 24;
      Recurrent<double> network({.cell = cell, .input_size = 5, .hidden_size = hidden, .heads = heads, .layers = 2}, 1);
      initialise(network, {.weights = InitialWeights::orthogonal}, 7);
      const Index size = hidden / heads;
      for (const char* const name : {"weight_hh_l0", "weight_hh_l1"}) {
        const auto matrix = network.parameter(name).value;
        ASSERT_EQ(static_cast<Index>(matrix.size()), heads * gates * size * size);
        for (Index block = 0; block < heads * gates; ++block) {
          const double* const r = matrix.data() + block * size * size;
          for (Index i = 0; i < size; ++i) {
            for (Index j = 0; j < size; ++j) {
              double product = 0.0;
              for (Index k = 0; k < size; ++k) product += r[i * size + k] * r[j * size + k];
              ASSERT_NEAR(product, i == j ? 1.0 : 0.0, 1e-14) << cell << " " << heads << " " << block;
            }
          }
        }
      }
      EXPECT_NE(network.parameter("weight_hh_l0").value[0], network.parameter("weight_hh_l1").value[0]);
    }
  }
}

TEST(InitialWeights, OrthogonalMatricesAreUniformlyDistributed) {
  // Entries of a uniformly distributed orthogonal matrix have mean 0 and variance 1 / size.
  constexpr Index size = 64;
  Recurrent<double> network({.cell = "elman", .input_size = 1, .hidden_size = size}, 1);
  double sum = 0.0, diagonal = 0.0;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    initialise(network, {.weights = InitialWeights::orthogonal}, seed);
    const auto matrix = network.parameter("weight_hh_l0").value;
    for (const double each : matrix) sum += each;
    for (Index i = 0; i < size; ++i) diagonal += matrix[static_cast<std::size_t>(i * size + i)];
  }
  const double deviation = std::sqrt(10.0 * size * size / size);  // of a sum of all entries
  EXPECT_LT(std::abs(sum), 4.0 * deviation);
  EXPECT_LT(std::abs(diagonal), 4.0 * std::sqrt(10.0));
}

TEST(InitialWeights, ChronoBiasesAreLogarithmsOfUniformTimes) {
  constexpr Index hidden = 4000;
  constexpr double longest = 100.0;
  struct Case {
    const char* cell;
    int keep, overwrite;
  };
  for (const auto& [cell, keep, overwrite] :
       {Case{"lstm", 1, 0}, Case{"gru", 1, -1}, Case{"mingru", -1, 0}, Case{"minlstm", 0, 1}, Case{"slstm", 1, -1}}) {
    Model model({.cell = cell, .width = 4, .blocks = 1, .hidden_size = hidden, .heads = cell[0] == 'm' ? 1 : 1000},
                numbers(), 1);
    const auto weight_ih = value(model, "blocks.0.recurrent.weight_ih");
    const std::vector<float> before(weight_ih.begin(), weight_ih.end());
    initialise(model, {.chrono = longest}, 3);
    EXPECT_TRUE(std::ranges::equal(before, value(model, "blocks.0.recurrent.weight_ih")));
    const auto bias = value(model, "blocks.0.recurrent.bias_ih");
    double sum = 0.0, squares = 0.0, least = longest, most = 0.0;
    for (Index unit = 0; unit < hidden; ++unit) {
      const auto kept = keep >= 0 ? bias[static_cast<std::size_t>(keep * hidden + unit)]
                                  : -bias[static_cast<std::size_t>(overwrite * hidden + unit)];
      const double time = std::exp(static_cast<double>(kept));
      sum += time;
      squares += time * time;
      least = std::min(least, time), most = std::max(most, time);
      if (keep >= 0 && overwrite >= 0) {
        EXPECT_EQ(bias[static_cast<std::size_t>(overwrite * hidden + unit)], -kept);
      }
    }
    // Uniform in 1 to 99: mean 50, variance 98^2 / 12.
    const double mean = sum / hidden, variance = squares / hidden - mean * mean;
    EXPECT_NEAR(mean, 50.0, 4.0 * 98.0 / std::sqrt(12.0 * hidden)) << cell;
    EXPECT_NEAR(variance, 98.0 * 98.0 / 12.0, 0.05 * 98.0 * 98.0 / 12.0) << cell;
    EXPECT_GE(least, 1.0 - 1e-6) << cell;
    EXPECT_LE(most, 99.0 + 1e-4) << cell;
  }
}

TEST(InitialWeights, IdentityKeepsTheStateOfARelu) {
  for (const Index heads : {1, 2}) {
    Recurrent<float> network({.cell = "elman-relu", .input_size = 3, .hidden_size = 8, .heads = heads}, 1);
    initialise(network, {.weights = InitialWeights::identity});
    // Without input, a state that is not negative stays.
    std::vector<float> state = {0.5f, 1.0f, 2.0f, 0.0f, 3.0f, 0.25f, 7.0f, 1.5f};
    const std::vector<float> before = state, x(3, 0.0f);
    std::vector<float> y(8);
    for (int t = 0; t < 5; ++t) network.step(1, x.data(), y.data(), state.data());
    EXPECT_EQ(y, before);
  }
}

TEST(InitialWeights, UniformOnesAreWithinTheBoundAndFillIt) {
  Model model({.cell = "gru", .width = 16, .blocks = 2}, numbers(), 1);
  initialise(model, {.weights = InitialWeights::uniform}, 1);
  for (const char* const name : {"weight_ih", "weight_hh", "bias_ih"}) {
    for (const char* const block : {"blocks.0.recurrent.", "blocks.1.recurrent."}) {
      const auto values = value(model, std::string(block) + name);
      const auto [least, most] = std::ranges::minmax(values);
      EXPECT_GE(least, -0.25f);
      EXPECT_LE(most, 0.25f);
      EXPECT_LT(least, -0.2f);
      EXPECT_GT(most, 0.2f);
    }
  }
}

TEST(InitialWeights, LearntVectorsAndOtherParametersStay) {
  define_cell({.name = "leaky-initial", .description = "", .learnt = {{"decay", 0.75}}}, [](const CellSymbols& at) {
    return std::vector<CellValue>{at.p[0] * at.s[0] + tanh(at.wx[0] + at.rh[0])};
  });
  for (const InitialWeights kind : {InitialWeights::uniform, InitialWeights::orthogonal, InitialWeights::identity}) {
    Model model({.cell = "leaky-initial", .width = 8, .blocks = 1}, numbers(), 1);
    const auto head = value(model, "head.weight");
    const std::vector<float> before(head.begin(), head.end());
    initialise(model, {.weights = kind});
    EXPECT_TRUE(std::ranges::equal(before, value(model, "head.weight")));
    const auto bias = value(model, "blocks.0.recurrent.bias_ih");
    ASSERT_EQ(bias.size(), 16u);
    for (const float each : bias.subspan(8)) EXPECT_EQ(each, 0.75f);
  }
}

TEST(InitialWeights, StandardOnesAreThoseOfTheConstructor) {
  Model model({.cell = "lstm", .width = 8}, numbers(), 5), same({.cell = "lstm", .width = 8}, numbers(), 5);
  initialise(model, {}, 9);
  EXPECT_TRUE(std::ranges::equal(model.impl().parameters->values(), same.impl().parameters->values()));
}

TEST(InitialWeights, RefusesWhatACellCannotHave) {
  const auto refused = [](const char* cell, const Initialisation& options, const std::string& message) {
    Model model({.cell = cell, .width = 8}, numbers());
    expect_error(ErrorCode::invalid_argument, message, [&] { initialise(model, options); });
    Recurrent<float> network({.cell = cell, .input_size = 2, .hidden_size = 4});
    expect_error(ErrorCode::invalid_argument, message, [&] { initialise(network, options); });
  };
  refused("mingru", {.weights = InitialWeights::orthogonal},
          "initial_weights orthogonal needs a cell with a recurrent matrix, such as gru or lstm: mingru has none");
  refused("gru", {.weights = InitialWeights::identity},
          "initial_weights identity needs a cell with a recurrent matrix and one gate, such as elman-relu, not gru");
  refused("elman", {.chrono = 50.0}, "chrono needs a cell with a gate that keeps its state");
  refused("lstm", {.chrono = 2.0}, "chrono must be above 2 steps, or 0, not 2");
  refused("lstm", {.weights = InitialWeights{4}}, "initial_weights must be a value of its enumeration, 0 to 3, not 4");
  expect_error(ErrorCode::invalid_argument,
               "initial_weights must be one of standard, uniform, orthogonal, identity, not \"glorot\"",
               [] { parse_initial_weights("glorot"); });
  Recurrent<float> network({.cell = "lstm", .input_size = 2, .hidden_size = 4, .bias = Bias::none});
  expect_error(ErrorCode::invalid_argument, "chrono needs layers with biases",
               [&] { initialise(network, {.chrono = 9.0}); });
}

}  // namespace
}  // namespace penstock
