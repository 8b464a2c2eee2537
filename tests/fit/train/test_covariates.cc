// Effects of covariates: found through what rows have to do with each other, and counted in forecasts.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/random.h"
#include "forecast/linear/covariates.h"
#include "penstock/forecast/score.h"
#include "penstock/train.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace penstock {
namespace {

using test::expect_error;
using test::TemporaryFolder;
using training::Covariates;

std::vector<double> autoregressive(Random& random, int rows, double factor) {
  std::vector<double> values = {random.normal()};
  while (static_cast<int>(values.size()) < rows) values.push_back(factor * values.back() + random.normal());
  return values;
}

std::vector<double> estimated(const std::vector<double>& z, const std::vector<std::vector<double>>& columns) {
  const std::span<const double> series(z);
  const Covariates covariates(columns.begin(), columns.end());
  const auto choice = training::choose_effects({&series, 1}, {&covariates, 1}, 1);
  return training::estimate_effects({&series, 1}, {&covariates, 1}, choice);
}

TEST(Effects, AreFoundThroughCorrelatedErrors) {
  Random random(3);
  constexpr int rows = 400;
  constexpr double factor = 0.9;
  std::vector<double> z = autoregressive(random, rows, factor), event, level;
  for (int i = 0; i < rows; ++i) {
    event.push_back(random.uniform() < 0.2 ? 1.0 : 0.0);
    level.push_back(random.normal());
    z[static_cast<std::size_t>(i)] += 3.0 * event.back() - 0.5 * level.back() + 7.0;
  }
  const auto effects = estimated(z, {event, level});
  // Standard errors of generalised least squares, where noise of unit variance and independent columns are left.
  const double spread = (1.0 + factor * factor) * rows;
  EXPECT_NEAR(effects[0], 3.0, 4.0 / std::sqrt(0.2 * 0.8 * spread));
  EXPECT_NEAR(effects[1], -0.5, 4.0 / std::sqrt(spread));
}

TEST(Effects, WanderingBesideEachOtherIsNone) {
  Random random(4);
  constexpr int rows = 400;
  const auto z = autoregressive(random, rows, 1.0), x = autoregressive(random, rows, 1.0);
  EXPECT_NEAR(estimated(z, {x})[0], 0.0, 4.0 / std::sqrt(static_cast<double>(rows)));
}

TEST(Effects, OfWhatNeverChangesOrTooFewRowsAreZero) {
  Random random(5);
  EXPECT_NEAR(estimated(autoregressive(random, 100, 0.5), {std::vector<double>(100, 2.0)})[0], 0.0, 1e-9);
  const auto few = estimated({1.0, 2.0, 4.0, 3.0, 5.0, 7.0}, {{0, 1, 0, 1, 0, 1}, {1, 1, 0, 0, 1, 1}});
  EXPECT_THAT(few, testing::Each(0.0));
}

/// A level that wanders a little, events that add to it, and a column of noise.
class SeriesWithEvents : public testing::Test {
 protected:
  static std::string rows_of(Random& random, const std::string& name, int rows, double unit) {
    std::string text;
    double rest = 0.0;
    for (int i = 0; i < rows; ++i) {
      rest = 0.5 * rest + 0.2 * random.normal();
      const int event = random.uniform() < 0.3 ? 1 : 0;
      text += fmt::format("{},{},{},{}\n", name, unit * (20.0 + 5.0 * event + rest), event, random.normal());
    }
    return text;
  }

  std::string one_series(int rows) {
    return folder_.write("s.csv", "name,x,event,noise\n" + rows_of(random_, "a", rows, 1.0));
  }

  /// The linear forecast by itself: a fresh model's layers add nothing to it.
  static Model linear_model(const Dataset& data) {
    ModelSpec spec{.cell = "gru", .width = 8, .blocks = 1, .from_last = true};
    use_linear_forecast(spec, data);
    Model model(spec, data.description(), 1);
    fit_autoregression(model, data);
    return model;
  }

  static double rmse(const Dataset& data) { return score_held_out(linear_model(data), data)[0].model.rmse; }

  static SeriesOptions options(const std::vector<std::string>& known) {
    return {.inputs = {"x"}, .horizon = 3, .from_last = true, .autoregression = true, .known = known};
  }

  TemporaryFolder folder_;
  Random random_{6};
};

TEST_F(SeriesWithEvents, TheLinearForecastCountsThem) {
  const std::string path = one_series(150);
  const auto with = open_series(path, options({"event"})), without = open_series(path, options({}));
  // A model without the events is off by 5 sqrt(0.3 0.7) = 2.3; the rest has a deviation of 0.2 / sqrt(0.75) = 0.23.
  EXPECT_GT(rmse(*without), 1.7);
  EXPECT_LT(rmse(*with), 0.35);
  EXPECT_TRUE(linear_model(*with).spec().branch_fields().known_effects);
  EXPECT_FALSE(linear_model(*without).spec().branch_fields().known_effects);
  EXPECT_LT(rmse(*open_series(path, options({"event", "noise"}))), 0.35);
}

TEST_F(SeriesWithEvents, ByLogarithmsTheyAreFactors) {
  std::string text = "x,event\n";
  for (int i = 0; i < 150; ++i) {
    const int event = random_.uniform() < 0.3 ? 1 : 0;
    text += fmt::format("{},{}\n", std::exp(0.02 * i + std::log(2.0) * event + 0.02 * random_.normal()), event);
  }
  SeriesOptions by_logarithm = options({"event"});
  by_logarithm.transform = Transform::logarithm;
  const auto data = open_series(folder_.write("s.csv", text), by_logarithm);
  const auto scores = score_held_out(linear_model(*data), *data);
  EXPECT_LT(scores[0].model.rmse, 0.1 * scores[0].best_rival().errors.rmse);
}

TEST_F(SeriesWithEvents, OfManySeriesAreInUnitsOfEach) {
  const std::string path = folder_.write(
      "g.csv", "name,x,event,noise\n" + rows_of(random_, "a", 90, 1.0) + rows_of(random_, "b", 90, 100.0));
  SeriesOptions grouped = options({"event"});
  grouped.group = "name";
  const auto data = open_series(path, grouped);
  for (const GroupScore& group : score_groups_held_out(linear_model(*data), *data)) {
    const double unit = group.group == "a" ? 1.0 : 100.0;
    EXPECT_LT(group.columns[0].model.rmse, 0.4 * unit) << group.group;
  }
}

TEST_F(SeriesWithEvents, AModelSaysWhatTheRegressionSays) {
  const auto data = open_series(one_series(120), options({"event"}));
  const Autoregression& linear = *linear_forecast(*data);
  const DataDescription& description = data->description();
  const auto inputs = static_cast<std::size_t>(description.input_size());
  const std::size_t x = *description.input_of("x"), event = *description.input_of("event");
  ASSERT_EQ(linear.effects.size(), inputs);
  EXPECT_GT(linear.effects[event], 0.0f);
  Example example;
  data->next(1, data->training_steps(), example);
  const auto rows = static_cast<std::size_t>(example.steps);
  const Column &as_input = description.inputs[x], &as_target = description.targets[0];
  const auto effect_in = [&](std::size_t row) {
    return static_cast<double>(linear.effects[event] * example.features[row * inputs + event]);
  };
  const auto value = [&](std::size_t row) {
    const double raw = as_input.raw(static_cast<double>(example.features[row * inputs + x]));
    return (raw - as_target.mean) / as_target.scale;
  };
  const Model model = linear_model(*data);
  std::vector<float> outputs(rows * 3);
  ModelState state = model.state(1);
  model.forward(1, example.steps, std::span<const float>(example.features), outputs, state);
  const auto lags = static_cast<std::size_t>(linear.lags);
  ASSERT_GT(rows, lags + 3);
  for (std::size_t row = lags - 1; row + 3 < rows; ++row) {
    for (std::size_t h = 0; h < 3; ++h) {
      double expected = value(row) - effect_in(row) + static_cast<double>(linear.bias[h]) + effect_in(row + 1 + h);
      for (std::size_t k = 0; k < lags; ++k) {
        expected += static_cast<double>(linear.weights[k * 3 + h]) * (value(row - k) - effect_in(row - k));
      }
      EXPECT_NEAR(static_cast<double>(outputs[row * 3 + h]), expected, 1e-4 * (1.0 + std::abs(expected))) << row;
    }
  }
}

TEST_F(SeriesWithEvents, BelongToModelsThatHaveThem) {
  const auto data = open_series(one_series(120), options({"event"}));
  const ModelSpec spec{.cell = "gru",
                       .width = 8,
                       .blocks = 1,
                       .from_last = true,
                       .branch = closed_form_branch({.lags = linear_forecast(*data)->lags})};
  Model model(spec, data->description(), 1);
  expect_error(ErrorCode::incompatible, "has no effects of what is known in advance",
               [&] { fit_autoregression(model, *data); });
  ModelSpec without = spec;
  without.branch = closed_form_branch({.known_effects = true});
  expect_error(ErrorCode::invalid_argument, "known_effects must be false for a model without lags",
               [&] { const Model refused(without, data->description(), 1); });
  const std::string path = folder_.path("m.safetensors");
  linear_model(*data).save(path);
  const Model loaded = Model::load(path);
  EXPECT_TRUE(loaded.spec().branch_fields().known_effects);
  EXPECT_EQ(score_held_out(loaded, *data)[0].model.rmse, rmse(*data));
}

}  // namespace
}  // namespace penstock
