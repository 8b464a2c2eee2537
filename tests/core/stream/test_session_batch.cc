// Many streams at once: each is a session by itself.

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "base/random.h"
#include "nn/model/model_impl.h"
#include "penstock/stream.h"
#include "stream/small_models.h"
#include "support/expect_error.h"
#include "support/tolerance.h"

namespace penstock {
namespace {

using test::expect_error;
using test::kClasses;
using test::same_bits;
using test::series;
using test::spec_of;
using test::text;

std::vector<float> copied(std::span<const float> values) { return {values.begin(), values.end()}; }

std::vector<float> row_of(std::span<const float> values, Index row, Index rows) {
  const auto width = values.size() / static_cast<std::size_t>(rows);
  return copied(values.subspan(static_cast<std::size_t>(row) * width, width));
}

/// Returns the tokens of a session by itself. Its random numbers and their counters are public.
std::vector<std::int32_t> written_alone(const Model& model, const std::vector<std::int32_t>& prompt, std::uint64_t seed,
                                        const Sampling& sampling, Index steps, const Execution& execution) {
  SessionBatch alone(model, 1, execution);
  alone.seed(0, seed);
  for (const std::int32_t token : prompt) alone.push(std::vector{token});
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(steps));
  alone.generate(sampling, steps, tokens);
  return tokens;
}

class Batch : public testing::TestWithParam<std::string> {};

TEST_P(Batch, EveryRowAnswersAsASessionToTheBit) {
  const Model model(spec_of(GetParam()), text(), 5);
  for (const Index rows : {1, 3, 17}) {
    for (const int threads : {1, 2}) {
      SCOPED_TRACE(testing::Message() << rows << " rows, threads " << threads);
      SessionBatch batch(model, rows, {.threads = threads});
      std::vector<Session> alone;
      for (Index row = 0; row < rows; ++row) alone.emplace_back(model);
      Random random(static_cast<std::uint64_t>(rows));
      for (Index step = 0; step < 12; ++step) {
        if (step == 5) batch.reset(rows / 2), alone[static_cast<std::size_t>(rows / 2)].reset();
        if (step == 9) {
          batch.reset();
          for (Session& session : alone) session.reset();
        }
        std::vector<std::int32_t> tokens;
        for (Index row = 0; row < rows; ++row) tokens.push_back(static_cast<std::int32_t>(random.below(kClasses)));
        const std::vector<float> logits = copied(batch.push(tokens));
        for (Index row = 0; row < rows; ++row) {
          const auto r = static_cast<std::size_t>(row);
          ASSERT_TRUE(same_bits(row_of(logits, row, rows), copied(alone[r].push(tokens[r]))))
              << "row " << row << ", step " << step;
        }
      }
    }
  }
}

TEST_P(Batch, EveryRowWritesAsByItselfWithItsSeed) {
  const Model model(spec_of(GetParam()), text(), 6);
  constexpr Index rows = 5, steps = 150;  // beyond what is read back at a time
  const std::vector<std::int32_t> prompt = {1, 30, 7};
  for (const Sampling& sampling :
       {Sampling{}, Sampling{.temperature = 1.5, .top_k = 7}, Sampling{.temperature = 0.0}}) {
    SCOPED_TRACE(testing::Message() << "temperature " << sampling.temperature);
    SessionBatch batch(model, rows, {.threads = 2});
    for (Index row = 0; row < rows; ++row) batch.seed(row, static_cast<std::uint64_t>(100 + row % 3));
    for (const std::int32_t token : prompt) batch.push(std::vector<std::int32_t>(rows, token));
    std::vector<std::int32_t> first(rows * 40), rest(rows * (steps - 40));
    batch.generate(sampling, 40, first);
    batch.generate(sampling, steps - 40, rest);
    for (Index row = 0; row < rows; ++row) {
      std::vector<std::int32_t> got(first.begin() + row * 40, first.begin() + (row + 1) * 40);
      got.insert(got.end(), rest.begin() + row * (steps - 40), rest.begin() + (row + 1) * (steps - 40));
      EXPECT_EQ(got, written_alone(model, prompt, static_cast<std::uint64_t>(100 + row % 3), sampling, steps, {}))
          << "row " << row;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cells, Batch, testing::Values("mingru", "minlstm-log", "lstm", "gru", "slstm"),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

TEST(SessionBatch, TheLikeliestTokenIsThatOfTheLogits) {
  const Model model(spec_of("mingru"), text(), 8);
  constexpr Index rows = 4;
  SessionBatch batch(model, rows), pushed(model, rows);
  std::vector<std::int32_t> tokens = {3, 1, 4, 15};
  batch.push(tokens);
  std::vector<std::int32_t> written(rows * 20);
  batch.generate({.temperature = 0.0}, 20, written);
  for (Index step = 0; step < 20; ++step) {
    const auto logits = copied(pushed.push(tokens));
    for (Index row = 0; row < rows; ++row) {
      const auto r = static_cast<std::size_t>(row);
      tokens[r] = sample(row_of(logits, row, rows), {.temperature = 0.0}, 0.0);
      EXPECT_EQ(written[static_cast<std::size_t>(row * 20 + step)], tokens[r]) << "row " << row << ", step " << step;
    }
  }
}

TEST(SessionBatch, TakesFeatures) {
  ModelSpec spec = spec_of("gru");
  spec.from_last = true;
  const Model model(spec, series(), 2);
  SessionBatch batch(model, 3);
  std::vector<Session> alone;
  for (int row = 0; row < 3; ++row) alone.emplace_back(model);
  Random random(4);
  for (int step = 0; step < 6; ++step) {
    if (step == 3) batch.reset(1), alone[1].reset();
    std::vector<float> features;
    for (int i = 0; i < 6; ++i) features.push_back(static_cast<float>(random.normal()));
    const std::vector<float> outputs = copied(batch.push(features));
    for (std::size_t row = 0; row < 3; ++row) {
      EXPECT_TRUE(same_bits(row_of(outputs, static_cast<Index>(row), 3),
                            copied(alone[row].push(std::span<const float>(features).subspan(2 * row, 2)))));
    }
  }
}

TEST(SessionBatch, OutlivesItsModelAndMoves) {
  std::optional<SessionBatch> moved;
  std::vector<float> want;
  {
    const Model model(spec_of("lstm"), text(), 5);
    Session alone(model);
    want = copied(alone.push(9));
    SessionBatch batch(model, 2);
    moved.emplace(std::move(batch));
  }
  EXPECT_TRUE(same_bits(row_of(moved->push(std::vector<std::int32_t>{0, 9}), 1, 2), want));
}

TEST(SessionBatch, RefusesWhatItCannotDo) {
  const Model model(spec_of("mingru"), text(), 5), forecasts(spec_of("mingru"), series(), 5);
  constexpr auto invalid = ErrorCode::invalid_argument;
  expect_error(invalid, "rows must be at least 1, not 0", [&] { SessionBatch(model, 0); });
#if !defined(__SANITIZE_ADDRESS__)  // which ends the program where an allocation fails
  expect_error(ErrorCode::out_of_memory, "a session of 70368744177664 rows needs ",
               [&] { SessionBatch(model, Index{1} << 46); });
#endif
  SessionBatch batch(model, 2), of_features(forecasts, 2);
  std::vector<std::int32_t> four(4);
  expect_error(invalid, "tokens must hold 2 values, not 1", [&] { batch.push(std::vector<std::int32_t>{1}); });
  expect_error(invalid, "token 40 at row 1, step 0 is outside 0..39", [&] { batch.push(std::vector{1, 40}); });
  expect_error(invalid, "this model reads tokens, not features", [&] { batch.push(std::vector{1.0f, 2.0f}); });
  expect_error(invalid, "features must hold 4 values, not 2", [&] { of_features.push(std::vector{1.0f, 2.0f}); });
  expect_error(invalid, "this model reads features, not tokens", [&] { of_features.push(std::vector{1, 2}); });
  expect_error(invalid, "this model reads features, not tokens", [&] { of_features.generate({}, 2, four); });
  expect_error(invalid, "row must be in 0..1, not 2", [&] { batch.reset(2); });
  expect_error(invalid, "row must be in 0..1, not -1", [&] { batch.seed(-1, 3); });
  expect_error(invalid, "tokens must hold 6 values (rows 2, steps 3), not 4", [&] { batch.generate({}, 3, four); });
  expect_error(invalid, "steps must be at least 0, not -1", [&] { batch.generate({}, -1, four); });
  expect_error(invalid, "top_p must be in (0, 1], not 2", [&] { batch.generate({.top_p = 2.0}, 2, four); });
}

TEST(SessionBatch, LogitsThatAreNotFiniteDrawNothing) {
  Model model(spec_of("mingru"), text(), 5);
  for (const nn::ParameterEntry& entry : model.impl().parameters->layout().entries()) {
    if (entry.name == "head.bias") {
      model.impl().parameters->values()[static_cast<std::size_t>(entry.offset)] =
          std::numeric_limits<float>::infinity();
    }
  }
  model.impl().parameters->changed();
  SessionBatch batch(model, 2);
  batch.push(std::vector{1, 2});
  std::vector<std::int32_t> tokens(2);
  expect_error(ErrorCode::numerical, "logits are not finite: no token can be drawn",
               [&] { batch.generate({}, 1, tokens); });
}

}  // namespace
}  // namespace penstock
