// Sessions: the same bits as the whole sequence, and nothing allocated on a step.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <optional>

#include "base/random.h"
#include "nn/model/model_impl.h"
#include "penstock/quantize.h"
#include "penstock/stream.h"
#include "support/allocations.h"
#include "support/expect_error.h"
#include "support/names.h"
#include "support/tolerance.h"

namespace penstock {
namespace {

using test::allocations;
using test::expect_error;
using test::same_bits;

DataDescription text_data() {
  DataDescription data;
  data.vocabulary = 50;
  return data;
}

DataDescription series_data() {
  DataDescription data;
  data.task = Task::forecast;
  data.inputs = {{"a", 0.0, 1.0}, {"b", 0.0, 1.0}, {"c", 0.0, 1.0}};
  data.targets = {{"a", 0.0, 1.0}, {"b", 0.0, 1.0}};
  data.series.horizon = 3;
  return data;
}

ModelSpec full_spec(const std::string& cell) {
  return {.cell = cell,
          .width = 33,
          .blocks = 2,
          .hidden_size = 40,
          .heads = find_cell(cell).scan ? 1 : 2,
          .convolution = 4,
          .feed_forward = 1.3,
          .dropout = 0.3};
}

/// Forecasts of two of the three inputs, from their last values.
ModelSpec series_spec(const std::string& cell) {
  ModelSpec spec = full_spec(cell);
  spec.from_last = true;
  return spec;
}

class EveryCell : public testing::TestWithParam<std::string> {
 protected:
  static constexpr Index steps = 60;

  EveryCell() {
    Random random(3);
    for (Index i = 0; i < steps; ++i) tokens_.push_back(static_cast<std::int32_t>(random.below(50)));
    for (Index i = 0; i < steps * 3; ++i) features_.push_back(static_cast<float>(random.normal()));
  }

  std::vector<std::int32_t> tokens_;
  std::vector<float> features_;
};

TEST_P(EveryCell, AnswersWithTheBitsOfTheWholeSequence) {
  const Model model(full_spec(GetParam()), text_data(), 7);
  for (const Precision precision : {Precision::full, Precision::bf16_weights, Precision::bf16}) {
    SCOPED_TRACE(to_string(precision));
    std::vector<float> whole(steps * 50);
    ModelState state = model.state(1);
    model.forward(1, steps, tokens_, whole, state, {.exact = true, .precision = precision});
    Session session(model, precision);
    std::vector<float> streamed;
    for (const std::int32_t token : tokens_) {
      const auto logits = session.push(token);
      streamed.insert(streamed.end(), logits.begin(), logits.end());
    }
    EXPECT_TRUE(same_bits(streamed, whole));

    session.reset();
    const auto first = session.push(tokens_[0]);
    EXPECT_TRUE(same_bits(std::vector<float>(first.begin(), first.end()), {whole.begin(), whole.begin() + 50}));
  }
}

TEST_P(EveryCell, AnswersOverInt8WithTheBitsOfTheWholeSequenceAndAllocatesNothing) {
  const Model floats(full_spec(GetParam()), text_data(), 7);
  const Model model = floats.with_int8(int8_layers(floats));
  std::vector<float> whole(steps * 50), streamed;
  ModelState state = model.state(1);
  model.forward(1, steps, tokens_, whole, state);
  Session session(model);
  streamed.reserve(whole.size());
  for (const std::int32_t token : tokens_) {
    const long before = allocations;
    const auto logits = session.push(token);
    EXPECT_EQ(allocations, before);
    streamed.insert(streamed.end(), logits.begin(), logits.end());
  }
  EXPECT_TRUE(same_bits(streamed, whole));
}

TEST(FilterBank, AnswersWithTheBitsOfTheWholeSequenceAndAllocatesNothing) {
  constexpr Index steps = 90, classes = 3;  // more steps than the widest filter spans
  DataDescription data;
  data.task = Task::classify;
  data.inputs = {{"a", 0.0, 1.0}, {"b", 0.0, 1.0}};
  data.labels.classes = {"x", "y", "z"};
  Model model({.cell = "gru", .width = 9, .blocks = 1, .branch = closed_form_branch({.filters = 22, .dilations = 4})},
              data, 7);
  Random random(3);
  for (const nn::ParameterEntry& entry : model.impl().parameters->layout().entries()) {
    if (!entry.name.starts_with("filters.")) continue;  // which are zeros until they are fitted
    for (float& value : model.impl().parameters->value(entry)) value = static_cast<float>(0.5 * random.normal());
  }
  model.impl().parameters->changed();
  std::vector<float> features;
  for (Index i = 0; i < steps * 2; ++i) features.push_back(static_cast<float>(random.normal()));
  for (const Precision precision : {Precision::full, Precision::bf16_weights, Precision::bf16}) {
    SCOPED_TRACE(to_string(precision));
    std::vector<float> whole(steps * classes), streamed(whole.size());
    ModelState state = model.state(1);
    model.forward(1, steps, features, whole, state, {.exact = true, .precision = precision});
    Session session(model, precision);
    for (Index t = 0; t < steps; ++t) {
      const long before = allocations;
      const auto logits = session.push(std::span(features).subspan(2 * t, 2));
      EXPECT_EQ(allocations, before) << t;
      std::ranges::copy(logits, streamed.begin() + t * classes);
    }
    EXPECT_TRUE(same_bits(streamed, whole));
    EXPECT_NE(whole[0], whole.back()) << "the test needs answers that change";
  }
}

TEST_P(EveryCell, RoundedWeightsAnswerDifferentlyAndNotMuch) {
  const Model model(full_spec(GetParam()), text_data(), 7);
  Session full(model), rounded(model, Precision::bf16_weights);
  std::vector<float> want, got;
  for (const std::int32_t token : tokens_) {
    const auto a = full.push(token), b = rounded.push(token);
    want.insert(want.end(), a.begin(), a.end());
    got.insert(got.end(), b.begin(), b.end());
  }
  EXPECT_FALSE(same_bits(got, want));
  EXPECT_TRUE(test::close(got, want, 0x1p15 * test::tolerance<float>({.summed = 80, .steps = 2 * steps}), 1.0));
}

TEST_P(EveryCell, AnswersForASeriesWithTheBitsOfTheWholeSequence) {
  const Model model(series_spec(GetParam()), series_data(), 7);
  std::vector<float> whole(steps * 6), streamed;
  ModelState state = model.state(1);
  model.forward(1, steps, features_, whole, state, {.exact = true});
  Session session(model);
  for (Index t = 0; t < steps; ++t) {
    const auto y = session.push(std::span<const float>(features_).subspan(static_cast<std::size_t>(3 * t), 3));
    streamed.insert(streamed.end(), y.begin(), y.end());
  }
  EXPECT_TRUE(same_bits(streamed, whole));
}

TEST_P(EveryCell, AStepAllocatesNothing) {
  const Model text(full_spec(GetParam()), text_data(), 7), series(series_spec(GetParam()), series_data(), 7);
  Session tokens(text), features(series);
  const long before = allocations;
  float sum = 0.0f;
  for (Index t = 0; t < steps; ++t) {
    sum += tokens.push(tokens_[static_cast<std::size_t>(t)])[0];
    sum += features.push(std::span<const float>(features_).subspan(static_cast<std::size_t>(3 * t), 3))[0];
    if (t == 30) tokens.reset();
  }
  EXPECT_EQ(allocations - before, 0) << "sum " << sum;
}

std::vector<std::string> cell_names() {
  std::vector<std::string> names;
  for (const CellInfo& cell : cells()) names.emplace_back(cell.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Cells, EveryCell, testing::ValuesIn(cell_names()), test::test_name);

TEST(Session, TheCounterCounts) {
  const long before = allocations;
  const std::vector<int> made(100);
  EXPECT_EQ(allocations - before, 1);
}

TEST(Session, OneInputAnswersWithTheBitsOfTheWholeSequence) {
  DataDescription data = series_data();
  data.inputs.resize(1);
  for (const Index width : {1, 7, 16, 17, 64}) {
    const Model model({.cell = "gru", .width = width, .blocks = 1}, data, 7);
    std::vector<float> features(20), whole(20 * 6), streamed;
    Random random(3);
    for (float& x : features) x = static_cast<float>(random.normal());
    ModelState state = model.state(1);
    model.forward(1, 20, features, whole, state, {.exact = true});
    Session session(model);
    for (const float& x : features) {
      const auto y = session.push(std::span<const float>(&x, 1));
      streamed.insert(streamed.end(), y.begin(), y.end());
    }
    EXPECT_TRUE(same_bits(streamed, whole)) << "width " << width;
  }
}

TEST(Session, AChunkIsItsStepsOneAfterTheOther) {
  const Model model(full_spec("lstm"), text_data(), 3);
  Session single(model), chunked(model);
  const std::vector<std::int32_t> tokens = {7, 0, 49, 3};
  std::vector<float> expected;
  for (const std::int32_t token : tokens) {
    const auto outputs = single.push(token);
    expected.insert(expected.end(), outputs.begin(), outputs.end());
  }
  EXPECT_TRUE(same_bits<float>(chunked.process_chunk(tokens), expected));
  // A wrong token leaves the state alone.
  const std::vector<std::int32_t> wrong = {1, 50};
  expect_error(ErrorCode::invalid_argument, "step 1: token 50 at row 0, step 0 is outside 0..49",
               [&] { chunked.process_chunk(wrong); });
  EXPECT_EQ(chunked.state(), single.state());
  chunked.reset_state();
  EXPECT_TRUE(same_bits<float>(chunked.process_chunk(tokens), expected));

  const Model series(series_spec("gru"), series_data(), 3);
  Session features(series);
  const std::vector<float> rows = {0.1f, 0.2f, 0.3f, 0.4f, 0.5f, 0.6f};
  EXPECT_EQ(features.process_chunk(rows).size(), 2u * 6u);
  expect_error(ErrorCode::invalid_argument, "features must hold rows of 3 values, not 5 values",
               [&] { features.process_chunk(std::span(rows).first(5)); });
  expect_error(ErrorCode::invalid_argument, "this model reads tokens, not features",
               [&] { single.process_chunk(std::span(rows)); });
}

TEST(Session, SessionsDoNotSeeEachOther) {
  const Model model(full_spec("gru"), text_data(), 7);
  Session a(model), b(model);
  for (int i = 0; i < 5; ++i) a.push(i);
  Session fresh(model);
  const auto from_b = b.push(9), from_fresh = fresh.push(9);
  EXPECT_TRUE(same_bits(std::vector<float>(from_b.begin(), from_b.end()),
                        std::vector<float>(from_fresh.begin(), from_fresh.end())));
}

TEST(Session, AHundredOfAModelShareItsPackedWeights) {
  for (const char* cell : {"gru", "minlstm"}) {
    const Model model(full_spec(cell), text_data(), 7);
    const graph::Weights& weights = *model.impl().parameters->weights();
    std::vector<Session> sessions;
    sessions.emplace_back(model);
    const std::size_t count = weights.derived_count(), bytes = weights.derived_bytes();
    EXPECT_EQ(count, 2u) << cell << ": panels of each block";
    EXPECT_GT(bytes, 0u) << cell;
    for (int i = 1; i < 100; ++i) sessions.emplace_back(model);
    EXPECT_EQ(weights.derived_count(), count) << cell;
    EXPECT_EQ(weights.derived_bytes(), bytes) << cell;
    const auto first = sessions.front().push(9), last = sessions.back().push(9);
    EXPECT_TRUE(
        same_bits(std::vector<float>(first.begin(), first.end()), std::vector<float>(last.begin(), last.end())));
  }
}

TEST(Session, OutlivesItsModel) {
  std::optional<Model> model(std::in_place, full_spec("lstm"), text_data(), 7);
  Session session(*model), reference(*model);
  const auto expected = reference.push(3);
  model.reset();
  const auto got = session.push(3);
  EXPECT_TRUE(
      same_bits(std::vector<float>(got.begin(), got.end()), std::vector<float>(expected.begin(), expected.end())));
}

TEST(Session, AClonesStateAndWeightsAreItsOwn) {
  std::optional<Model> model(std::in_place, full_spec("lstm"), text_data(), 7);
  Session session(*model), reference(*model);
  for (const int token : {3, 5, 8}) session.push(token), reference.push(token);
  Session clone = session.clone();
  model.reset();
  for (int token = 0; token < 20; ++token) clone.push(token);  // moves nobody else
  const auto expected = reference.push(9), got = session.push(9);
  const std::vector<float> wanted(expected.begin(), expected.end());
  EXPECT_TRUE(same_bits(std::vector<float>(got.begin(), got.end()), wanted));
  reference.reset();
  Session again = reference.clone();
  const auto first = again.push(3), other = reference.push(3);
  EXPECT_TRUE(
      same_bits(std::vector<float>(first.begin(), first.end()), std::vector<float>(other.begin(), other.end())));
}

TEST(Session, RefusesWrongInput) {
  const Model text({.width = 4}, text_data()), series({.width = 4}, series_data());
  Session tokens(text), features(series);
  expect_error(ErrorCode::invalid_argument, "token 50 at row 0, step 0 is outside 0..49", [&] { tokens.push(50); });
  expect_error(ErrorCode::invalid_argument, "token -1 at row 0, step 0 is outside 0..49", [&] { tokens.push(-1); });
  expect_error(ErrorCode::invalid_argument, "this model reads features, not tokens", [&] { features.push(1); });
  const std::vector<float> two(2);
  expect_error(ErrorCode::invalid_argument, "features must hold 3 values, not 2", [&] { features.push(two); });
  expect_error(ErrorCode::invalid_argument, "this model reads tokens, not features", [&] { tokens.push(two); });
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), -3.4e38f}) {
    const std::vector<float> row = {0.0f, bad, 0.0f};
    expect_error(ErrorCode::invalid_argument, "features must be numbers of at most 1e+12, not",
                 [&] { features.push(row); });
  }
}

TEST(Session, WhatIsNotFiniteIsNeverAnAnswerAndNotKept) {
  const Model model(series_spec("mingru"), series_data(), 7);
  Session session(model), fresh(model);
  const std::vector<float> row = {0.1f, -0.2f, 0.3f};
  std::vector<float> state = session.state();
  std::ranges::fill(state, std::numeric_limits<float>::max());
  session.restore(state);
  expect_error(ErrorCode::numerical, "the model's answer is not finite; the session was reset",
               [&] { session.push(row); });
  const auto expected = fresh.push(row), got = session.push(row);
  EXPECT_TRUE(
      same_bits(std::vector<float>(got.begin(), got.end()), std::vector<float>(expected.begin(), expected.end())));
}

}  // namespace
}  // namespace penstock
