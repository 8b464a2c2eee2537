// When a run ends and which model it leaves: the best one, by validations that its steps decide.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "nn/model/model_impl.h"
#include "penstock/train.h"
#include "penstock/train/stopping.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"
#include "toy_data.h"

namespace penstock {
namespace {

using test::CopyTask;
using test::expect_error;

TrainOptions patient(Index every, Index patience) {
  TrainOptions options;
  options.validate_steps = every;
  options.patience = patience;
  return options;
}

TEST(Stopping, CountsValidationsThatAreNoBetter) {
  Stopping stopping(patient(10, 2), {});
  EXPECT_TRUE(stopping.due(20));
  EXPECT_FALSE(stopping.due(21));
  EXPECT_TRUE(stopping.note(1.0, 10, true));
  EXPECT_FALSE(stopping.note(1.0, 20, true));
  EXPECT_FALSE(stopping.exhausted());
  EXPECT_FALSE(stopping.note(2.0, 25, false)) << "by time: kept out of the count, which must not depend on the machine";
  EXPECT_FALSE(stopping.exhausted());
  EXPECT_TRUE(stopping.note(0.5, 30, true));
  EXPECT_FALSE(stopping.note(std::numeric_limits<double>::quiet_NaN(), 40, true));
  EXPECT_FALSE(stopping.exhausted());
  EXPECT_FALSE(stopping.note(0.6, 50, true));
  EXPECT_TRUE(stopping.exhausted());
  EXPECT_EQ(stopping.history().best_step, 30);
}

TEST(Plateau, LowersTheRateAsPyTorchDoes) {
  // ReduceLROnPlateau(optimizer, factor=0.5, patience=3) on an optimiser with lr=1.0.
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double losses[] = {3.0, 2.0, 2.5, 2.5, 1.9999, nan, 1.99, 2.5, 2.5, 2.5, 2.5, 2.5, 2.5, 2.5, 2.5};
  const double factors[] = {1, 1, 1, 1, 1, 0.5, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.25, 0.125};
  Plateau plateau;
  for (int i = 0; i < 15; ++i) {
    const double before = plateau.factor;
    EXPECT_EQ(plateau.note(losses[i]), factors[i] < before) << i;
    EXPECT_EQ(plateau.factor, factors[i]) << i;
  }
  for (int i = 0; i < 200; ++i) plateau.note(nan);
  EXPECT_EQ(plateau.factor, std::pow(0.5, 26)) << "no change smaller than 1e-8";
}

TEST(Plateau, NeedsValidationsBySteps) {
  CopyTask data;
  Model model({.cell = "gru", .width = 4}, data.description());
  TrainOptions options;
  options.max_steps = 3;
  options.schedule = Schedule::plateau;
  expect_error(ErrorCode::invalid_argument,
               "schedule plateau goes by validations by steps: validate_steps must be above 0",
               [&] { train(model, data, options); });
}

TEST(Plateau, NeedsHeldOutData) {
  const test::TemporaryFolder folder;
  const auto data = open_text(folder.write("text.txt", std::string(500, 'a')), {.validation_fraction = 0.0});
  Model model({.cell = "gru", .width = 4}, data->description());
  TrainOptions options;
  options.max_steps = 3;
  options.schedule = Schedule::plateau;
  options.validate_steps = 1;
  expect_error(ErrorCode::invalid_argument,
               "schedule plateau goes by the loss of held-out data: hold some out, or choose another schedule",
               [&] { train(model, *data, options); });
  options.schedule = Schedule::cosine;
  options.patience = 1;
  expect_error(ErrorCode::invalid_argument,
               "patience counts validations on held-out data: hold some out, or set it to 0",
               [&] { train(model, *data, options); });
}

TEST(Stopping, TheCooldownComesToItsEnd) {
  Stopping stopping(patient(10, 1), {});
  stopping.note(1.0, 10, true);
  stopping.note(2.0, 100, true);
  EXPECT_EQ(stopping.fraction(100), 0.0);
  stopping.begin_cooldown(100, 0.3);
  EXPECT_FALSE(stopping.exhausted()) << "one cooldown is enough";
  EXPECT_DOUBLE_EQ(stopping.fraction(100), 0.5);
  EXPECT_DOUBLE_EQ(stopping.fraction(110), 0.75);
  EXPECT_DOUBLE_EQ(stopping.fraction(120), 1.0);
  EXPECT_DOUBLE_EQ(stopping.fraction(500), 1.0);
}

TEST(Stopping, TheCooldownBeginsAfterTheWarmUp) {
  TrainOptions options = patient(10, 1);
  options.warmup = 0.8;
  Stopping stopping(options, {});
  stopping.begin_cooldown(100, 0.3);
  EXPECT_DOUBLE_EQ(stopping.fraction(100), 0.8);
  EXPECT_DOUBLE_EQ(stopping.fraction(120), 1.0);
}

/// A rate at which the network soon gets worse again.
TrainOptions unsteady(Index steps) {
  TrainOptions options;
  options.max_steps = steps;
  options.batch = 4;
  options.length = 12;
  options.learning_rate = 0.3;
  options.warmup = 0.0;
  options.log_every = 1e9;
  options.execution.threads = 1;
  options.validate_steps = 5;
  options.keep_best = true;
  return options;
}

const ModelSpec spec{.cell = "lstm", .width = 8, .blocks = 1};

TEST(Train, KeepsTheBestModel) {
  CopyTask data;
  Model model(spec, data.description(), 1);
  double best = INFINITY;
  TrainCallbacks callbacks;
  std::vector<Index> steps;
  callbacks.validation = [&](const Progress& progress, const Evaluation& evaluation) {
    best = std::min(best, evaluation.loss);
    steps.push_back(progress.step);
  };
  const TrainOptions options = unsteady(60);
  const TrainResult result = train(model, data, options, callbacks);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(steps[i], std::min<Index>(60, 5 * (static_cast<Index>(i) + 1))) << "not the step of the last report";
  }
  EXPECT_EQ(result.validation->loss, best);
  EXPECT_EQ(evaluate(model, data, options).loss, best);
  EXPECT_LE(result.model_step, 60);
  EXPECT_EQ(result.model_step % 5, 0);

  CopyTask again;
  Model last(spec, again.description(), 1);
  TrainOptions without = options;
  without.keep_best = false;
  EXPECT_GE(train(last, again, without).validation->loss, best);
}

TEST(Train, EndsWhenNothingGetsBetter) {
  CopyTask data;
  Model model(spec, data.description(), 1);
  TrainOptions options = unsteady(100000);
  options.patience = 4;
  const TrainResult result = train(model, data, options);
  EXPECT_TRUE(result.stopped_early);
  EXPECT_FALSE(result.interrupted);
  EXPECT_LT(result.last.step, 100000);
  EXPECT_LT(result.last.learning_rate, 0.1 * options.learning_rate) << "the rate comes down before the end";
}

TEST(Train, ALongAverageSoonForgetsTheFirstWeights) {
  const auto loss = [](double average) {
    CopyTask data;
    Model model({.cell = "gru", .width = 16}, data.description(), 1);
    TrainOptions options = test::steps(400);
    options.average = average;
    return train(model, data, options).validation->loss;
  };
  EXPECT_LT(loss(0.9999), 1.1 * loss(0.0) + 0.01);
}

TEST(Train, TheCooldownStartsFromTheBestWeightsAndTheirAverage) {
  for (const double average : {0.0, 0.9}) {
    CopyTask data;
    Model model(spec, data.description(), 1);
    TrainOptions options = unsteady(100000);
    options.patience = 4;
    options.keep_best = false;
    options.average = average;
    double best = INFINITY;
    Index without_gain = 0, validations_in_cooldown = 0;
    TrainCallbacks callbacks;
    callbacks.validation = [&](const Progress&, const Evaluation& evaluation) {
      if (without_gain == options.patience) {
        EXPECT_EQ(evaluation.loss, best) << average;
        ++validations_in_cooldown;
        return;
      }
      without_gain = evaluation.loss < best ? 0 : without_gain + 1;
      best = std::min(best, evaluation.loss);
    };
    // Without labels, no step of the cooldown changes the weights.
    data.spoil = [&](Index, Example& example) {
      if (without_gain == options.patience) std::ranges::fill(example.labels, -1);
    };
    EXPECT_TRUE(train(model, data, options, callbacks).stopped_early);
    EXPECT_GE(validations_in_cooldown, 1) << average;
  }
}

TEST(Train, TheRateOfAPlateauFallsInTheCooldown) {
  CopyTask data;
  Model model(spec, data.description(), 1);
  TrainOptions options = unsteady(100000);
  options.patience = 6;
  options.schedule = Schedule::plateau;
  options.log_every = 0.0;
  double best = INFINITY;
  Index without_gain = 0;
  std::vector<double> rates;
  TrainCallbacks callbacks;
  callbacks.validation = [&](const Progress&, const Evaluation& evaluation) {
    if (without_gain < options.patience) without_gain = evaluation.loss < best ? 0 : without_gain + 1;
    best = std::min(best, evaluation.loss);
  };
  callbacks.progress = [&](const Progress& progress) {
    if (rates.empty() || without_gain == options.patience) rates.push_back(progress.learning_rate);
  };
  EXPECT_TRUE(train(model, data, options, callbacks).stopped_early);
  EXPECT_EQ(rates.front(), options.learning_rate);
  ASSERT_GE(rates.size(), 6u) << "a step before the cooldown, and those of it";
  for (std::size_t i = 1; i < rates.size(); ++i) EXPECT_LT(rates[i], rates[i - 1]) << i;
  EXPECT_LT(rates.back(), 0.15 * rates[1]);
}

class PatienceAfterAResume : public testing::TestWithParam<std::pair<Schedule, double>> {};

TEST_P(PatienceAfterAResume, IsTheSameBits) {
  const test::TemporaryFolder folder;
  TrainOptions options = unsteady(100000);
  options.patience = 5;
  std::tie(options.schedule, options.average) = GetParam();
  const auto weights = [](const Model& model) {
    const auto values = model.impl().parameters->values();
    return std::vector<float>(values.begin(), values.end());
  };
  CopyTask data;
  Model straight(spec, data.description(), 1);
  const TrainResult whole = train(straight, data, options);

  options.checkpoint_path = folder.path("checkpoint");
  for (const Index cut : {Index{7}, whole.last.step - 3}) {
    CopyTask fresh;
    Model model(spec, fresh.description(), 1);
    TrainCallbacks callbacks;
    callbacks.stop = [left = cut]() mutable { return --left == 0; };
    EXPECT_TRUE(train(model, fresh, options, callbacks).interrupted);
    CopyTask other;
    Model resumed(spec, other.description(), 2);
    const TrainResult result = train(resumed, other, options, {}, true);
    EXPECT_EQ(result.last.step, whole.last.step);
    EXPECT_EQ(result.model_step, whole.model_step);
    EXPECT_EQ(weights(resumed), weights(straight));
  }
}

INSTANTIATE_TEST_SUITE_P(Train, PatienceAfterAResume,
                         testing::Values(std::pair(Schedule::cosine, 0.0), std::pair(Schedule::plateau, 0.0),
                                         std::pair(Schedule::plateau, 0.9)));

TEST(Train, PatienceNeedsValidationsBySteps) {
  CopyTask data;
  Model model(spec, data.description(), 1);
  TrainOptions options = unsteady(10);
  options.validate_steps = 0;
  options.patience = 1;
  expect_error(ErrorCode::invalid_argument, "patience counts validations by steps: validate_steps must be given too",
               [&] { train(model, data, options); });
}

}  // namespace
}  // namespace penstock
