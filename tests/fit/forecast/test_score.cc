// Scores in the data's own units, the rivals that cost nothing, and the season that is found for them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "base/random.h"
#include "penstock/error.h"
#include "penstock/forecast/score.h"

namespace penstock {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;

DataDescription one_column(Index horizon, Index season) {
  DataDescription data;
  data.task = Task::forecast;
  data.inputs = data.targets = {{"x", 0.0, 1.0}};
  data.series.horizon = horizon;
  data.series.season = season;
  return data;
}

std::vector<double> wave(Index rows, Index season, double noise, double trend = 0.0) {
  Random random(7);
  std::vector<double> values;
  for (Index i = 0; i < rows; ++i) {
    const double angle = 2.0 * std::numbers::pi * static_cast<double>(i) / static_cast<double>(season);
    values.push_back(std::sin(angle) + 0.5 * std::cos(2.0 * angle) + noise * random.normal() +
                     trend * static_cast<double>(i));
  }
  return values;
}

TEST(ForecastScore, IsThatOfErrorsCountedByHand) {
  // Rows 1 2 4 8 16; from the third on, two rows ahead are forecast to be 5 and 9.
  ForecastScorer scorer(one_column(2, 1));
  const double values[] = {1.0, 2.0, 4.0, 8.0, 16.0};
  const double forecast[] = {5.0, 9.0};
  for (int row = 0; row < 5; ++row) {
    scorer.add({&values[row], 1}, row < 2 ? std::span<const double>() : std::span<const double>(forecast));
  }
  const auto scores = scorer.scores();
  ASSERT_EQ(scores.size(), 1u);
  const ColumnScore& score = scores[0];
  // From 4: 5 for 8 and 9 for 16; from 8: 5 for 16.
  EXPECT_EQ(score.scored, 3);
  EXPECT_DOUBLE_EQ(score.model.mae, (3.0 + 7.0 + 11.0) / 3.0);
  EXPECT_DOUBLE_EQ(score.model.rmse, std::sqrt((9.0 + 49.0 + 121.0) / 3.0));
  EXPECT_DOUBLE_EQ(score.model.smape, 2.0 * (3.0 / 13.0 + 7.0 / 25.0 + 11.0 / 21.0) / 3.0);
  EXPECT_DOUBLE_EQ(score.model.mase, score.model.mae / 1.5);  // changes of 1 and 2 up to the first forecast
  ASSERT_EQ(score.rivals.size(), 2u);
  EXPECT_EQ(score.rivals[0].name, "the last value");
  EXPECT_DOUBLE_EQ(score.rivals[0].errors.mae, (4.0 + 12.0 + 8.0) / 3.0);
  // Drift: 1.5 a row from 4, and 7/3 from 8.
  EXPECT_DOUBLE_EQ(score.rivals[1].errors.mae, (2.5 + 9.0 + (8.0 - 7.0 / 3.0)) / 3.0);
  EXPECT_EQ(score.best_rival().name, "drift");
}

TEST(ForecastScore, ASeasonAgoIsTheLatestRowKnownOfThatSeason) {
  ForecastScorer scorer(one_column(5, 3));
  const std::vector<double> forecast(5, 0.0);
  for (int row = 0; row < 20; ++row) {
    const double value = static_cast<double>(row % 3);
    scorer.add({&value, 1}, row < 4 ? std::span<const double>() : std::span<const double>(forecast));
  }
  const auto scores = scorer.scores();
  ASSERT_EQ(scores[0].rivals.size(), 3u);
  EXPECT_EQ(scores[0].rivals[1].name, "a season ago");
  EXPECT_EQ(scores[0].rivals[1].errors.rmse, 0.0);
  EXPECT_EQ(scores[0].model.mase, 0.0) << "nothing changes over a season: there is no scale";
}

TEST(ForecastScore, NeitherForecastsNorRivalsReachIntoAnotherFile) {
  // Two files, 1 2 3 and 10 30 50 70: forecasts of 0 from the second row of the first file on.
  ForecastScorer scorer(one_column(2, 2));
  const double forecast[] = {0.0, 0.0};
  for (const std::vector<double>& file : {std::vector{1.0, 2.0, 3.0}, std::vector{10.0, 30.0, 50.0, 70.0}}) {
    scorer.begin_file();
    for (const double value : file) {
      scorer.add({&value, 1}, value == 1.0 ? std::span<const double>() : std::span<const double>(forecast));
    }
  }
  const ColumnScore score = scorer.scores()[0];
  EXPECT_EQ(score.scored, 1 + 5);
  EXPECT_DOUBLE_EQ(score.model.mae, (3.0 + 30.0 + 50.0 + 50.0 + 70.0 + 70.0) / 6.0);
  EXPECT_DOUBLE_EQ(score.rivals[0].errors.mae, (1.0 + 20.0 + 40.0 + 20.0 + 40.0 + 20.0) / 6.0);
  // Two rows before; the first of the file where that is older.
  EXPECT_DOUBLE_EQ(score.rivals[1].errors.mae, (2.0 + 20.0 + 40.0 + 40.0 + 40.0 + 40.0) / 6.0);
  EXPECT_DOUBLE_EQ(score.rivals[2].errors.mae, (0.0 + 20.0 + 40.0 + 0.0 + 0.0 + 0.0) / 6.0);
}

TEST(ForecastScore, LevelsHideNoErrors) {
  for (const double level : {0.0, 1e9, 1e12, 5e41}) {
    ForecastScorer scorer(one_column(1, 1));
    const double unit = level > 1e15 ? 1e-3 * level : 1.0;  // as doubles have no smaller ones
    double sum = 0.0;
    for (int row = 0; row < 5; ++row) {
      const double value = level + unit * row, forecast = level + unit * (row + 1.25);
      scorer.add({&value, 1}, {&forecast, 1});
      sum += row < 4 ? std::abs(forecast - (level + unit * (row + 1))) : 0.0;
    }
    const ColumnScore score = scorer.scores()[0];
    EXPECT_DOUBLE_EQ(score.model.mae, sum / 4.0) << level;
    EXPECT_NEAR(score.model.rmse, 0.25 * unit, 1e-9 * unit) << level;
    EXPECT_NEAR(score.rivals[0].errors.rmse, unit, 1e-9 * unit) << level;
  }
}

TEST(ForecastScore, QuantilesAreCountedByHand) {
  DataDescription data = one_column(1, 1);
  data.series.errors = {
      .levels = {0.1, 0.5, 0.9}, .quantiles = {-2.0, 0.0, 1.0}, .scales = {2.0}, .relative = {0}, .endings = {}};
  ForecastScorer scorer(data, {0.1, 0.5, 0.9});
  const double values[] = {0.0, 1.0, -3.0, 2.5}, forecast = 0.0;  // quantiles -4, 0 and 2
  for (const double& value : values) scorer.add({&value, 1}, {&forecast, 1});
  const QuantileScore score = scorer.scores()[0].quantiles.value();
  EXPECT_DOUBLE_EQ(score.coverage, 2.0 / 3.0);
  const double low = 0.1 * (5.0 + 1.0 + 6.5), middle = 0.5 * (1.0 + 3.0 + 2.5), high = 0.1 * (1.0 + 5.0) + 0.9 * 0.5;
  EXPECT_DOUBLE_EQ(score.pinball, (low + middle + high) / 9.0);
  const Column& column = data.targets[0];
  EXPECT_DOUBLE_EQ(data.series.errors.quantile(0.3, 0, column, 5.0), 3.0) << "halfway between two levels";
  data.series.errors.relative = {1};
  EXPECT_DOUBLE_EQ(data.series.errors.quantile(0.9, 0, column, 5.0), 5.0 * std::exp(2.0));
  EXPECT_EQ(data.series.errors.quantile(0.9, 0, column, -5.0), -5.0);
  EXPECT_THAT([&] { (void)data.series.errors.quantile(0.05, 0, column, 5.0); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("level must be 0.1 to 0.9, not 0.05")));
}

TEST(ErrorDistribution, OfAColumnThatEndsAtZeroIsBoundedThere) {
  Column column{.name = "rain", .mean = 10.0, .scale = 4.0};
  EXPECT_DOUBLE_EQ(column.raw(-3.0), -2.0);
  column.non_negative = true;
  EXPECT_EQ(column.raw(-3.0), 0.0);
  EXPECT_EQ(column.raw(-2.5), 0.0);
  EXPECT_FALSE(std::signbit(column.raw(-2.5)));
  EXPECT_DOUBLE_EQ(column.raw(-2.0), 2.0);
  EXPECT_TRUE(std::isnan(column.raw(std::nan(""))));
  const ErrorDistribution spread{
      .levels = {0.1, 0.9}, .quantiles = {-1.0, 1.0}, .scales = {1.0}, .relative = {0}, .endings = {}};
  EXPECT_EQ(spread.quantile(0.1, 0, column, -2.0), 0.0);
  EXPECT_DOUBLE_EQ(spread.quantile(0.9, 0, column, -3.0), 4.0) << "above the forecast that counts, 0";
  EXPECT_DOUBLE_EQ(spread.error_between(4.0, -3.0, 0, column), 1.0);
}

TEST(ForecastScore, NothingThatCouldBeCompared) {
  ForecastScorer scorer(one_column(2, 1));
  EXPECT_TRUE(scorer.scores().empty());
  const double value = 1.0, forecast[] = {1.0, 1.0};
  scorer.add({&value, 1}, {});
  EXPECT_TRUE(scorer.scores().empty());
  scorer.add({&value, 1}, forecast);
  EXPECT_TRUE(scorer.scores().empty()) << "no row follows the only forecast";
}

TEST(Season, IsFoundUnderNoiseAndTrend) {
  for (const Index season : {4, 7, 12, 24, 52}) {
    EXPECT_EQ(find_season(wave(6 * season + 3, season, 0.05)), season);
    EXPECT_EQ(find_season(wave(10 * season, season, 0.2, 0.05)), season);
  }
}

TEST(Season, IsNoneWhereNothingRepeatsItself) {
  EXPECT_EQ(find_season({}), 1);
  EXPECT_EQ(find_season(std::vector<double>(200, 3.0)), 1);
  std::vector<double> line;
  for (int i = 0; i < 100; ++i) line.push_back(2.0 * i);
  EXPECT_EQ(find_season(line), 1);
  EXPECT_EQ(find_season(std::vector<double>{1.0, 2.0, 1.0, 2.0}), 1) << "too few rows to tell";
  Random random(3);
  int found = 0;
  for (int series = 0; series < 40; ++series) {
    std::vector<double> walk = {0.0};
    for (int i = 0; i < 200; ++i) walk.push_back(walk.back() + random.normal());
    found += find_season(walk) > 1 ? 1 : 0;
  }
  EXPECT_LE(found, 4) << "of 40 random walks";
}

}  // namespace
}  // namespace penstock
