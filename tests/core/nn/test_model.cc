// The whole model: gradients of every cell, splits, batches, lengths, and what is refused.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <thread>

#include "gradient_check.h"
#include "nn/model/initialise.h"
#include "nn/model/model_graph.h"
#include "nn/model/model_impl.h"
#include "nn/model/model_spec.h"
#include "nn/program_run.h"
#include "penstock/model.h"
#include "support/expect_error.h"
#include "support/names.h"
#include "support/run_op.h"
#include "support/tolerance.h"

namespace penstock {
namespace {

using graph::Home;
using test::expect_error;
using test::expect_gradient;
using test::ProgramRun;
using test::random_values;
using test::same_bits;

DataDescription language(Index vocabulary) {
  DataDescription data;
  data.task = Task::language;
  data.vocabulary = vocabulary;
  return data;
}

DataDescription series(Index inputs, Index targets) {
  DataDescription data;
  data.task = Task::forecast;
  for (Index i = 0; i < inputs; ++i) data.inputs.push_back({"in" + std::to_string(i), 0.0, 1.0});
  for (Index i = 0; i < targets; ++i) data.targets.push_back({"out" + std::to_string(i), 0.0, 1.0});
  return data;
}

std::vector<std::string> cell_names() {
  std::vector<std::string> names;
  for (const CellInfo& cell : cells()) names.emplace_back(cell.name);
  return names;
}

std::vector<std::int32_t> random_tokens(Random& random, Index count, Index vocabulary) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
  for (auto& token : tokens) token = static_cast<std::int32_t>(random.below(vocabulary));
  return tokens;
}

/// A whole model, whose backward pass starts at its outputs.
test::Build layers(const ModelSpec& spec, const DataDescription& data) {
  return
      [=](nn::GraphBuilder& builder) -> test::Ends { return {nn::add_model(builder, spec, data, Home::outputs).head}; };
}

class EveryCell : public testing::TestWithParam<std::string> {
 protected:
  /// A model with every part there is, small enough for finite differences.
  ModelSpec full_spec() const {
    return {.cell = GetParam(),
            .width = 4,
            .blocks = 2,
            .hidden_size = 6,
            .heads = find_cell(GetParam()).scan ? 1 : 2,
            .convolution = 3,
            .feed_forward = 1.5,
            .dropout = 0.2};
  }

  void check_gradients(const ModelSpec& spec, const DataDescription& data, std::uint64_t seed = 12) {
    constexpr Index rows = 2, steps = 6;
    const std::vector<Index> lengths = {6, 4};
    std::vector<std::uint8_t> reset(rows * steps, 0);
    reset[3] = 1;
    // A seed for which no positive candidate lies within a difference of its kink at zero, and some unit of Elman's
    // with ReLU is alive.
    Random random(seed);
    const ops::Target target{.rows = rows,
                             .steps = steps,
                             .flags = {CallFlag::lengths, CallFlag::reset, CallFlag::training},
                             .execution = {.threads = 1}};
    ProgramRun<double> run(target, layers(spec, data));
    nn::Parameters<double>& parameters = *run.parameters();
    nn::initialise(run.layout(), parameters.values().data(), 3);
    for (const nn::ParameterEntry& entry : run.layout().entries()) {
      for (double& value : parameters.value(entry)) value += 0.1 * random.normal();
    }
    run.call.batch.lengths = lengths.data();
    run.call.batch.reset = reset.data();
    run.call.seed = 9;
    const Index outputs = data.output_size();
    const std::vector<std::int32_t> tokens = random_tokens(random, rows * steps, std::max<Index>(data.vocabulary, 1));
    const std::vector<double> features = random_values(random, rows * steps * data.input_size());
    if (data.vocabulary > 0) {
      std::ranges::copy(tokens, run.home<std::int32_t>(Home::tokens).begin());
    } else {
      run.fill(Home::features, features);
    }
    std::vector<double> weight = random_values(random, rows * steps * outputs);
    std::fill(weight.begin() + (steps + lengths[1]) * outputs, weight.end(), 0.0);  // padding is not scored
    // A small state, as sLSTM's normaliser must not be negative.
    std::vector<double> start = random_values(random, std::ssize(run.home(Home::state_in)), 0.1);
    for (double& value : start) value = std::abs(value);
    run.fill(Home::state_in, start);

    const auto loss = [&] {
      parameters.changed();
      const std::vector<double> y = run.forward();
      return std::inner_product(y.begin(), y.end(), weight.begin(), 0.0);
    };
    loss();
    run.backward(weight);
    const std::vector<double> gradients = run.values(Home::gradients);
    for (const nn::ParameterEntry& entry : run.layout().entries()) {
      expect_gradient(entry.name, parameters.value(entry), std::span(gradients).subspan(entry.offset, entry.size),
                      loss);
    }
  }
};

TEST_P(EveryCell, GradientsOfATokenModelAgreeWithFiniteDifferences) { check_gradients(full_spec(), language(3)); }
TEST_P(EveryCell, GradientsOfAFeatureModelAgreeWithFiniteDifferences) { check_gradients(full_spec(), series(2, 3)); }

/// Two inputs, of which the forecasts are the second and a column that is no input, three rows ahead.
DataDescription shared_series() {
  DataDescription data = series(2, 2);
  data.targets[1] = data.inputs[1];
  data.series.horizon = 3;
  return data;
}

TEST_P(EveryCell, GradientsOfAForecastFromTheLastValueAgreeWithFiniteDifferences) {
  ModelSpec spec = full_spec();
  spec.from_last = true;
  check_gradients(spec, shared_series(), 13);
}

TEST_P(EveryCell, GradientsWithoutNormsAtTheEndsAgreeWithFiniteDifferences) {
  ModelSpec spec = full_spec();
  spec.end_norms = false;
  spec.from_last = true;
  check_gradients(spec, shared_series(), 13);
  spec.convolution = 0;  // the recurrent layer reads what goes past it
  check_gradients(spec, shared_series(), 5);
  spec.blocks = 1;
  spec.feed_forward = 0.0;
  check_gradients(spec, shared_series(), 5);
}

TEST_P(EveryCell, AnySplitAndAnyBatchIsTheSameToTheBitInExactMode) {
  constexpr Index rows = 3, steps = 37;
  ModelSpec spec = full_spec();
  spec.width = 17;
  const Model model(spec, language(50), 4);
  Random random(5);
  const std::vector<std::int32_t> tokens = random_tokens(random, rows * steps, 50);
  const Execution exact{.exact = true};
  std::vector<float> whole(rows * steps * 50);
  ModelState state = model.state(rows);
  model.forward(rows, steps, tokens, whole, state, exact);

  for (Index b = 0; b < rows; ++b) {
    ModelState row_state = model.state(1);
    std::vector<float> joined;
    for (const auto& [begin, end] : {std::pair<Index, Index>{0, 1}, {1, 2}, {2, 18}, {18, 18}, {18, 37}}) {
      std::vector<float> part(static_cast<std::size_t>((end - begin) * 50));
      const auto first = tokens.begin() + b * steps;
      model.forward(1, end - begin, std::vector<std::int32_t>(first + begin, first + end), part, row_state, exact);
      joined.insert(joined.end(), part.begin(), part.end());
    }
    const auto first = whole.begin() + b * steps * 50;
    EXPECT_TRUE(same_bits(joined, std::vector<float>(first, first + steps * 50))) << "row " << b;
  }
}

TEST_P(EveryCell, TheStateCarriesTheSequence) {
  DataDescription data = series(2, 1);
  data.targets = {data.inputs[1]};
  const Model model({.cell = GetParam(), .width = 8, .blocks = 2, .convolution = 4, .from_last = true}, data, 1);
  Random random(6);
  std::vector<float> x;
  for (const double value : random_values(random, 20 * 2)) x.push_back(static_cast<float>(value));
  std::vector<float> whole(20), first(12), second(8), forgotten(8);
  ModelState state = model.state(1);
  model.forward(1, 20, x, whole, state);
  state = model.state(1);
  model.forward(1, 12, std::span(x).first(24), first, state);
  model.forward(1, 8, std::span(x).last(16), second, state);
  state = model.state(1);
  model.forward(1, 8, std::span(x).last(16), forgotten, state);
  const double tolerance = test::tolerance<float>({.summed = 8, .steps = 20});
  EXPECT_TRUE(test::close(second, std::vector<float>(whole.begin() + 12, whole.end()), tolerance, 1.0));
  EXPECT_FALSE(test::close(forgotten, second, tolerance, 1.0)) << "the state makes no difference";
}

INSTANTIATE_TEST_SUITE_P(Cells, EveryCell, testing::ValuesIn(cell_names()), test::test_name);

TEST(Model, TheSeedDecidesTheWeights) {
  const auto weights = [](std::uint64_t seed) {
    const Model model({.width = 8}, language(5), seed);
    const auto values = model.impl().parameters->values();
    return std::vector<float>(values.begin(), values.end());
  };
  EXPECT_EQ(weights(3), weights(3));
  EXPECT_NE(weights(3), weights(4));
}

TEST(Model, CountsItsParameters) {
  const ModelSpec spec{
      .cell = "lstm", .width = 8, .blocks = 3, .hidden_size = 6, .heads = 2, .convolution = 4, .feed_forward = 2.0};
  const DataDescription data = series(3, 2);
  const Model model(spec, data);
  const Index block = 8 + (4 + 1) * 8 + 4 * 6 * 8 + 4 * 6 * 3 + 4 * 6 + (6 + 1) * 8 + 8 + (8 + 1) * 32 + (16 + 1) * 8;
  EXPECT_EQ(model.parameter_count(), (3 + 1) * 8 + 3 * block + 8 + (8 + 1) * 2);
  EXPECT_EQ(nn::parameter_count(spec, data), model.parameter_count());

  ModelSpec plain = spec;
  plain.end_norms = false;
  EXPECT_EQ(Model(plain, data).parameter_count(), model.parameter_count() - 2 * 8);
  EXPECT_EQ(nn::parameter_count(plain, data), Model(plain, data).parameter_count());

  const ModelSpec changes{.width = 8, .from_last = true};
  EXPECT_EQ(nn::parameter_count(changes, shared_series()), Model(changes, shared_series()).parameter_count());
}

TEST(Model, FreshLogitsAreNearGuessing) {
  for (const std::string& cell : cell_names()) {
    const Model model({.cell = cell, .width = 64, .blocks = 3}, language(256), 1);
    Random random(2);
    const std::vector<std::int32_t> tokens = random_tokens(random, 64, 256);
    std::vector<float> y(64 * 256);
    ModelState state = model.state(1);
    model.forward(1, 64, tokens, y, state);
    const double mean_square = std::inner_product(y.begin(), y.end(), y.begin(), 0.0) / static_cast<double>(y.size());
    EXPECT_LT(mean_square, 0.3) << cell;
    EXPECT_GT(mean_square, 0.01) << cell;
  }
}

/// Outputs [steps] for inputs that are `factor` times as large.
std::vector<float> outputs_of_scaled(const Model& model, float factor) {
  constexpr Index steps = 12;
  Random random(9);
  std::vector<float> x(steps * 2), y(steps);
  for (float& value : x) value = factor * static_cast<float>(random.normal());
  ModelState state = model.state(1);
  model.forward(1, steps, x, y, state);
  return y;
}

TEST(Model, WithoutNormsAtTheEndsSmallInputsMakeSmallOutputs) {
  const DataDescription data = series(2, 1);
  const auto spread = [&](bool end_norms, float factor) {
    Model model({.width = 16, .blocks = 1, .end_norms = end_norms}, data, 1);
    for (const nn::ParameterEntry& entry : model.impl().parameters->layout().entries()) {
      if (entry.name == "input.bias") std::ranges::fill(model.impl().parameters->value(entry), 0.0f);
    }
    model.impl().parameters->changed();
    const std::vector<float> y = outputs_of_scaled(model, factor);
    const auto [least, greatest] = std::ranges::minmax(y);
    return greatest - least;
  };
  EXPECT_GT(spread(true, 1e-2f), 0.5f * spread(true, 1.0f));
  EXPECT_LT(spread(false, 1e-2f), 0.1f * spread(false, 1.0f));
}

TEST(Model, ForecastsStartFromTheLastValue) {
  constexpr Index rows = 2, steps = 5, outputs = 6;
  DataDescription data = shared_series();
  data.inputs[1] = {"in1", 10.0, 4.0};
  data.targets[1] = {"in1", 20.0, 2.0};  // as nobody normalises, but may
  const std::vector<Index> lengths = {5, 3};
  Random random(7);
  const std::vector<double> features = random_values(random, rows * steps * 2), bias = random_values(random, outputs);
  const auto forecasts = [&](bool from_last) {
    ProgramRun<double> run({.rows = rows, .steps = steps, .flags = {CallFlag::lengths}},
                           layers({.width = 4, .from_last = from_last}, data));
    nn::Parameters<double>& parameters = *run.parameters();
    nn::initialise(run.layout(), parameters.values().data(), 3);
    // Layers that say the same of every row.
    for (const nn::ParameterEntry& entry : run.layout().entries()) {
      if (entry.name == "head.weight") std::ranges::fill(parameters.value(entry), 0.0);
      if (entry.name == "head.bias") std::ranges::copy(bias, parameters.value(entry).begin());
    }
    run.call.batch.lengths = lengths.data();
    run.fill(Home::features, features);
    std::ranges::fill(run.home(Home::state_in), 0.0);
    return run.forward();
  };
  const std::vector<double> values = forecasts(false), from_last = forecasts(true);
  for (Index b = 0; b < rows; ++b) {
    for (Index i = b * steps * outputs; i < (b * steps + lengths[b]) * outputs; ++i) {
      const double raw = 10.0 + 4.0 * features[i / outputs * 2 + 1];
      const double last = i % 2 == 1 ? (raw - 20.0) / 2.0 : 0.0;  // the first target is no input
      EXPECT_NEAR(from_last[i], values[i] + last, 1e-12) << i;
    }
  }
}

TEST(Changes, AreThoseFromTheRowBefore) {
  constexpr Index rows = 3, steps = 4;
  DataDescription data = shared_series();
  data.inputs[1] = {"in1", 10.0, 4.0};
  data.targets[1] = {"in1", 10.0, 1.0};
  const ops::Changes changes = nn::changes_of(data);
  const double unit = 4.0 * std::sqrt(2.0);  // of in1's input in targets, and of a change within a horizon of 3
  ASSERT_EQ(changes.width(), 3);
  ASSERT_EQ(changes.state_size(), 2);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> x = {0,   1,   0,   3,   0,   -2,  0,   5,    // from a start
                                 0,   7,   0,   8,   nan, nan, nan, nan,  // goes on behind a 6, and is short
                                 nan, nan, nan, nan, nan, nan, nan, nan};
  const std::vector<Index> lengths = {4, 2, 0};
  const std::vector<std::uint8_t> reset = {0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  std::vector<double> y(rows * steps * 3, nan), state = {0, 0, 6, 1, -9, 1};
  const ops::Target target{
      .dtype = DType::f64, .rows = rows, .steps = steps, .flags = {CallFlag::lengths, CallFlag::reset}};
  const ops::Call call{.batch = {.rows = rows, .steps = steps, .lengths = lengths.data(), .reset = reset.data()}};
  const std::vector<double> before = state;
  std::vector<double> apart(state.size(), nan), same(y.size(), nan);
  test::run_op(ops::read_changes(changes), target, call, {test::reads(x), state.data(), y.data(), state.data()});
  test::run_op(ops::read_changes(changes), target, call,
               {test::reads(x), test::reads(before), same.data(), apart.data()});
  EXPECT_EQ(apart, state);
  EXPECT_EQ(same, y);
  const std::vector<double> expected = {0, 1, 0,    0, 3, 2 * unit, 0, -2, 0, 0, 5, 7 * unit,  //
                                        0, 7, unit, 0, 8, unit,     0, 0,  0, 0, 0, 0,         //
                                        0, 0, 0,    0, 0, 0,        0, 0,  0, 0, 0, 0};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(y[i], i % 3 == 1 ? std::tanh(expected[i]) : expected[i], 1e-12) << i;  // the value is bounded
  }
  EXPECT_EQ(state, (std::vector<double>{5, 1, 8, 1, -9, 1}));
}

/// Tokens of some rows and steps, and what a model answers to them.
struct Question {
  Index rows, steps;
  int threads;

  std::vector<float> ask(const Model& model) const {
    Random random(static_cast<std::uint64_t>(100 * rows + steps));
    const std::vector<std::int32_t> tokens = random_tokens(random, rows * steps, 50);
    std::vector<float> y(static_cast<std::size_t>(rows * steps * 50));
    ModelState state = model.state(rows);
    model.forward(rows, steps, tokens, y, state, {.threads = threads});
    y.insert(y.end(), state.values.begin(), state.values.end());
    return y;
  }
};

TEST(Model, ThreadsMayAskOneModelAtOnce) {
  const Model model({.cell = "lstm", .width = 33, .blocks = 2, .convolution = 3, .feed_forward = 1.5}, language(50), 4);
  // More shapes than a model keeps programs for, so that some are made anew while others run.
  std::vector<Question> questions;
  for (Index i = 0; i < 12; ++i) questions.push_back({1 + i % 3, 1 + 5 * i, 1 + static_cast<int>(i % 2)});
  std::vector<std::vector<float>> want;
  for (const Question& question : questions) want.push_back(question.ask(Model(model.spec(), model.data(), 4)));
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (std::size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t i = 0; i < 4 * questions.size(); ++i) {
        const std::size_t which = (i * (t + 1) + t) % questions.size();
        if (!same_bits(questions[which].ask(model), want[which])) ++wrong[t];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(wrong, testing::Each(0));
}

TEST(Model, TheNumberOfThreadsMayDifferFromCallToCall) {
  // Long sequences of few rows and channels, which scan cells share by chunks where there are threads for them.
  for (const std::string& cell : cell_names()) {
    const ModelSpec spec{.cell = cell, .width = 9, .blocks = 1};
    const Model model(spec, language(50), 4);
    for (const int threads : {1, 5, 2, 16, 1}) {
      const Question question{2, 2500, threads};
      EXPECT_TRUE(same_bits(question.ask(model), question.ask(Model(spec, language(50), 4))))
          << cell << " on " << threads << " threads";
    }
  }
}

TEST(Model, CallsOfAllShapesShareOneSetOfWeights) {
  const Model model({.cell = "gru", .width = 16, .blocks = 3}, language(50), 4);
  const graph::Weights& weights = *model.impl().parameters->weights();
  EXPECT_EQ(weights.derived_count(), 0u);
  (void)Question{1, 1, 1}.ask(model);
  EXPECT_EQ(weights.derived_count(), 3u);
  const std::size_t bytes = weights.derived_bytes();
  for (Index i = 1; i < 20; ++i) (void)Question{i, 2 * i, 1}.ask(model);
  EXPECT_EQ(weights.derived_count(), 3u);
  EXPECT_EQ(weights.derived_bytes(), bytes);
}

TEST(Model, RefusesWhatIsImpossible) {
  const auto refused = [](const std::string& message, const ModelSpec& spec, const DataDescription& data) {
    expect_error(ErrorCode::invalid_argument, message, [&] { Model model(spec, data); });
  };
  const DataDescription text = language(256);
  refused("width must be 1 to 65536, not 0", {.width = 0}, text);
  refused("blocks must be 1 to 1024, not 0", {.blocks = 0}, text);
  refused("hidden_size must be 0 to 65536, not -1", {.hidden_size = -1}, text);
  refused("heads must divide the hidden size 256, 3 does not", {.cell = "lstm", .heads = 3}, text);
  refused("heads must be 1 for cell mingru", {.cell = "mingru", .heads = 2}, text);
  refused("convolution must be 0 to 1024, not 2000", {.convolution = 2000}, text);
  refused("feed_forward must be 0 to 64, not -1", {.feed_forward = -1.0}, text);
  refused("feed_forward must be 0 to 64, not nan", {.feed_forward = std::nan("")}, text);
  refused("dropout must be in [0, 1), not 1", {.dropout = 1.0}, text);
  refused("from_last must be false for a model that forecasts none of its inputs", {.from_last = true}, text);
  refused("from_last must be false for a model that forecasts none of its inputs", {.from_last = true}, series(2, 1));
  refused("gruu", {.cell = "gruu"}, text);
  refused("make a model of", {.cell = "lstm", .width = 65536, .blocks = 1024}, text);
  refused("vocabulary must be 1 to 1048576, not 0", {}, language(0));
  refused("number of inputs must be 1 to 65536, not 0", {}, series(0, 1));
  refused("number of targets must be 1 to 65536, not 0", {}, series(1, 0));
  DataDescription data = series(1, 1);
  data.inputs[0].scale = 0.0;
  refused("inputs: scale of column \"in0\" must be positive, not 0", {}, data);
  data = series(1, 1);
  data.series.horizon = 0;
  refused("horizon must be 1 to 65536, not 0", {}, data);
  data = language(256);
  data.task = Task::classify;
  refused("classes must name at least one label", {}, data);
  data.task = Task{3};
  refused("task must be a value of its enumeration, 0 to 2, not 3", {}, data);
}

TEST(Model, RefusesBuffersOfTheWrongSize) {
  const Model model({.width = 4}, language(10));
  ModelState state = model.state(2);
  const std::vector<std::int32_t> tokens(6, 1);
  std::vector<float> y(60);
  const auto refused = [](const std::string& message, auto call) {
    expect_error(ErrorCode::invalid_argument, message, call);
  };
  refused("outputs must hold 60 values (rows 2, steps 3, size 10), not 59",
          [&] { model.forward(2, 3, tokens, std::span(y).first(59), state); });
  refused("tokens must hold 6 values (rows 2, steps 3), not 5",
          [&] { model.forward(2, 3, std::span(tokens).first(5), y, state); });
  refused("state is of 2 rows, the call of 3", [&] { model.forward(3, 2, tokens, y, state); });
  refused("this model reads tokens, not features", [&] { model.forward(2, 3, std::vector<float>(6), y, state); });
  refused("rows must be at least 1, not 0", [&] { model.state(0); });
  const std::vector<std::int32_t> bad = {1, 2, 3, 4, 10, 6};
  refused("token 10 at row 1, step 1 is outside 0..9", [&] { model.forward(2, 3, bad, y, state); });
}

}  // namespace
}  // namespace penstock
