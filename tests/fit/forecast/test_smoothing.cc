// Exponential smoothing: its forecasts from a window of rows, the constants that are found, and seasons found by it.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <numeric>

#include "base/algebra/nelder_mead.h"
#include "base/random.h"
#include "forecast/linear/season_choice.h"
#include "forecast/linear/smoothing_fit.h"

namespace penstock::training {
namespace {

using Numbers = std::vector<double>;

std::span<const double> span_of(const Numbers& z) { return z; }

// The ridge of the first state is 1e-9 of its Gram matrix: what is known exactly comes out so exactly.
constexpr double exact = 1e-6;

TEST(Smoothing, GoesOnWithALineAndASeasonThatItsRowsFollowExactly) {
  constexpr Index period = 4, lags = 20, horizon = 9;
  const auto value = [](Index row) {
    constexpr double seasons[] = {3.0, -1.0, 2.0, -4.0};
    return 5.0 + 0.25 * static_cast<double>(row) + seasons[row % period];
  };
  Numbers z;
  for (Index row = 3; row < 3 + lags; ++row) z.push_back(value(row));  // not at the beginning of a season
  for (const double level : {0.02, 0.5, 0.98}) {
    const Smoothing smoothing{.has_trend = true, .period = period, .level = level, .trend = 0.01, .season = 0.01};
    const LinearForecast forecast = smooth(smoothing, lags, horizon);
    for (Index ahead = 1; ahead <= horizon; ++ahead) {
      EXPECT_NEAR(forecast.at(z, lags - 1, ahead), value(3 + lags - 1 + ahead), exact * 10.0) << level << " " << ahead;
    }
  }
}

TEST(Smoothing, BeginsWithTheLevelThatItsRowsFitBest) {
  constexpr Index lags = 10;
  constexpr double level = 0.3;
  Random random(3);
  Numbers z(lags);
  for (double& value : z) value = random.normal();
  // A walk from any first level, whose squares are least between its neighbours.
  const auto squares_and_last = [&](double at) {
    double squares = 0.0;
    for (const double value : z) {
      squares += (value - at) * (value - at);
      at += level * (value - at);
    }
    return std::pair(squares, at);
  };
  double low = -10.0, high = 10.0;
  while (high - low > 1e-10) {
    const double third = (high - low) / 3.0;
    (squares_and_last(low + third).first < squares_and_last(high - third).first ? high : low) +=
        squares_and_last(low + third).first < squares_and_last(high - third).first ? -third : third;
  }
  const LinearForecast forecast = smooth({.level = level}, lags, 3);
  for (Index ahead = 1; ahead <= 3; ++ahead) {
    // A minimum of squares is only as sharp as the root of rounding.
    EXPECT_NEAR(forecast.at(z, lags - 1, ahead), squares_and_last(low).second, exact);
  }
}

TEST(Smoothing, MovesWithItsRows) {
  for (const Smoothing& smoothing :
       {Smoothing{.level = 0.2}, Smoothing{.has_trend = true, .level = 0.7, .trend = 0.1, .damping = 0.9},
        Smoothing{.period = 3, .level = 0.4, .season = 0.3}}) {
    const LinearForecast forecast = smooth(smoothing, 12, 5);
    for (Index h = 0; h < 5; ++h) {
      double sum = 0.0;
      for (Index k = 0; k < 12; ++k) sum += forecast.weights[k * 5 + h];
      EXPECT_NEAR(sum, 1.0, exact);
      EXPECT_EQ(forecast.bias[h], 0.0);
    }
  }
}

TEST(Smoothing, GoesOnWithALevelThatGrows) {
  constexpr Index lags = 20, horizon = 6;
  constexpr double growth = 1.04, zero = -3.0;
  const auto value = [](Index row) { return zero + 0.7 * std::pow(growth, static_cast<double>(row)); };
  Numbers z;
  for (Index row = 0; row < lags; ++row) z.push_back(value(row));
  for (const double level : {0.02, 0.5, 0.98}) {
    const LinearForecast forecast = smooth({.level = level, .growth = growth, .zero = zero}, lags, horizon);
    for (Index ahead = 1; ahead <= horizon; ++ahead) {
      EXPECT_NEAR(forecast.at(z, lags - 1, ahead), value(lags - 1 + ahead), exact * 10.0) << level << " " << ahead;
    }
  }
}

/// Values that grow by 3 % a row but for chance, counted from -2.
Numbers growing_values(std::uint64_t seed, Index rows, double noise) {
  Random random(seed);
  Numbers z;
  for (double logarithm = 0.0; static_cast<Index>(z.size()) < rows; logarithm += 0.03 + noise * random.normal()) {
    z.push_back(std::exp(logarithm) - 2.0);
  }
  return z;
}

TEST(Smoothing, FindsHowALevelGrows) {
  constexpr double noise = 0.004;
  for (const std::uint64_t seed : {1, 2, 3, 4, 5}) {
    const Numbers z = growing_values(seed, 80, noise);
    const auto found = fit_growing_smoothing(std::array{span_of(z)}, -2.0, 4);
    ASSERT_TRUE(found);
    // Squares of errors count a row by the square of its value: the mean of its growth with such weights w varies by
    // noise^2 sum w^2 / (sum w)^2.
    double weights = 0.0, squares = 0.0;
    for (const double value : z) {
      const double weight = (value + 2.0) * (value + 2.0);
      weights += weight;
      squares += weight * weight;
    }
    EXPECT_NEAR(std::log(found->smoothing.growth), 0.03, 4.0 * noise * std::sqrt(squares) / weights) << seed;
  }
  const Numbers z = growing_values(1, 80, noise);
  EXPECT_FALSE(fit_growing_smoothing(std::array{span_of(z)}, z[3], 4));  // not all are more than nothing
}

TEST(Smoothing, GivesGrowthHalfOfWhatSpeaksForIt) {
  constexpr Index lags = 40, horizon = 4;
  const Numbers z = growing_values(7, 80, 0.004);
  const std::array all = {span_of(z)};
  const auto growing = fit_growing_smoothing(all, -2.0, horizon);
  const auto without = fit_mean_smoothing(all, 1, lags, horizon);
  const auto mean = fit_mean_smoothing(all, 1, lags, horizon, -2.0);
  ASSERT_TRUE(growing && without && mean);
  // Nothing speaks for the others: Akaike's criterion alone would leave them a share below 1e-3.
  for (const FittedSmoothing& each : fit_smoothings(all, 1, horizon)) {
    ASSERT_GT(each.information, growing->information + 2.0 * std::log(4.0 * 1e3));
  }
  const LinearForecast alone = smooth(growing->smoothing, lags, horizon);
  for (Index ahead = 1; ahead <= horizon; ++ahead) {
    const double a = without->at(z, 79, ahead), b = alone.at(z, 79, ahead);
    EXPECT_NEAR(mean->at(z, 79, ahead), 0.5 * (a + b), 1e-3 * std::abs(a - b) + 1e-12) << ahead;
  }
}

TEST(Smoothing, FindsTheConstantsThatMadeASeries) {
  constexpr Index rows = 1200;
  constexpr double level = 0.3;
  for (const std::uint64_t seed : {1, 2, 3, 4}) {
    Random random(seed);
    double at = 0.0;
    Numbers z;
    for (Index row = 0; row < rows; ++row) {
      const double error = random.normal();
      z.push_back(at + error);
      at += level * error;
    }
    const auto all = fit_smoothings(std::array{span_of(z)}, 1, 1);
    ASSERT_EQ(all.size(), 4u);
    // Its moving average has a coefficient of 1 - level, which n rows leave uncertain by sqrt((1 - c^2) / n).
    const double deviation = std::sqrt((1.0 - (1.0 - level) * (1.0 - level)) / static_cast<double>(rows));
    EXPECT_NEAR(all.front().smoothing.level, level, 4.0 * deviation) << seed;
    EXPECT_FALSE(all.front().smoothing.has_trend);
    // A trend that is not there is worth less than what its two numbers cost, but for chance: chi-squared of two
    // degrees is above 13.8 in one of a thousand.
    EXPECT_GT(all[2].information, all.front().information - 13.8 + 4.0) << seed;
  }
}

TEST(Smoothing, ForecastsASteadyTrendAsSteady) {
  constexpr Index rows = 120, lags = 48;
  constexpr double slope = 0.7;
  for (const std::uint64_t seed : {1, 2, 3, 4}) {
    Random random(seed);
    double at = 0.0;
    Numbers z;
    for (Index row = 0; row < rows; ++row) z.push_back(at += slope + random.normal());
    const auto all = fit_smoothings(std::array{span_of(z)}, 1, 8);
    const auto is_steady = [](const FittedSmoothing& each) {
      return each.smoothing.has_trend && each.smoothing.trend == 0.0 && each.smoothing.damping == 1.0;
    };
    const auto steady = std::ranges::find_if(all, is_steady);
    ASSERT_NE(steady, all.end());
    const LinearForecast forecast = smooth(steady->smoothing, lags, 2);
    // The slope of a walk is known by its ends alone, from so many steps.
    const double seen = forecast.at(z, rows - 1, 2) - forecast.at(z, rows - 1, 1);
    EXPECT_NEAR(seen, slope, 4.0 / std::sqrt(static_cast<double>(lags - 1))) << seed;
  }
}

TEST(Smoothing, OfTooFewRowsOrOfAConstantIsNone) {
  const Numbers constant(50, 2.0), few = {1.0, 2.0, 4.0, 3.0};
  EXPECT_FALSE(fit_mean_smoothing(std::array{span_of(constant)}, 1, 20, 3));
  EXPECT_FALSE(fit_mean_smoothing(std::array{span_of(few)}, 1, 3, 2));
  EXPECT_FALSE(smoothing_window(9, 1));
  EXPECT_EQ(smoothing_window(10, 1), 8) << "of few rows more than half";
  EXPECT_EQ(smoothing_window(19, 1), 8);
  EXPECT_EQ(smoothing_window(20, 1), 9);
  EXPECT_FALSE(smoothing_window(60, 20)) << "fewer than two seasons in half of the rows";
  EXPECT_EQ(smoothing_window(60, 4), 29);
  EXPECT_EQ(smoothing_window(1000, 4), 48);
  EXPECT_EQ(smoothing_window(1000, 24), 144);
}

TEST(Smoothing, OfManySeriesLearnsFromAll) {
  constexpr double level = 0.25;
  constexpr Index rows = 25;
  std::vector<Numbers> all;
  Random random(9);
  for (int i = 0; i < 80; ++i) {
    double at = 10.0 * random.normal();
    Numbers& z = all.emplace_back();
    for (Index row = 0; row < rows; ++row) {
      const double error = random.normal();
      z.push_back(at + error);
      at += level * error;
    }
  }
  const std::vector<std::span<const double>> spans(all.begin(), all.end());
  const auto fitted = fit_smoothings(spans, 1, 1);
  ASSERT_FALSE(fitted.empty());
  // As above, but each of 80 first levels is fitted, too, and takes one row's worth.
  const double deviation = std::sqrt((1.0 - (1.0 - level) * (1.0 - level)) / (80.0 * (rows - 1)));
  // Fitting the first levels draws the constant down by some 1 / rows: they explain a part of what errors moved.
  EXPECT_NEAR(fitted.front().smoothing.level, level, 4.0 * deviation + 1.0 / rows);
}

TEST(SeasonChoice, FindsAFaintSeasonOnABendingTrendAndNoneInAWalk) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    Random random(seed);
    Numbers months, walk = {0.0};
    for (Index row = 0; row < 72; ++row) {
      const double turn = 0.5 * static_cast<double>(std::min(row, 72 - row));
      months.push_back(turn + 3.0 * std::cos(2.0 * std::numbers::pi * static_cast<double>(row) / 12.0) +
                       random.normal());
      walk.push_back(walk.back() + random.normal());
    }
    EXPECT_EQ(choose_season(std::array{span_of(months)}, 6).rows, 12) << seed;
    EXPECT_EQ(choose_season(std::array{span_of(walk)}, 6).rows, 1) << seed;
  }
}

TEST(SeasonChoice, OfFewYearsOfMonthsIsBeyondDoubtWhereItFitsThatWell) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    Random random(seed);
    Numbers months;
    for (Index row = 0; row < 46; ++row) {
      constexpr double of_months[] = {9, 8, 9, 2, -1, -3, -5, -6, -6, -4, -3, 4};
      months.push_back(of_months[row % 12] + random.normal());
    }
    const ChosenSeason chosen = choose_season(std::array{span_of(months)}, 12);
    EXPECT_EQ(chosen.rows, 12) << seed;
    EXPECT_TRUE(chosen.plain) << seed;
  }
}

TEST(SeasonChoice, HalfASeasonThatIsAlikeIsNotTheSeason) {
  // Two swings a year, the second one smaller.
  Numbers z;
  Random random(4);
  for (Index row = 0; row < 150; ++row) {
    const double angle = 2.0 * std::numbers::pi * static_cast<double>(row) / 12.0;
    z.push_back(5.0 * std::cos(2.0 * angle) + 2.0 * std::cos(angle) + 0.3 * random.normal());
  }
  EXPECT_EQ(choose_season(std::array{span_of(z)}, 6).rows, 12);
}

TEST(NelderMead, FindsTheMinimumOfABentValley) {
  const auto rosenbrock = [](const Numbers& x) {
    return (1.0 - x[0]) * (1.0 - x[0]) + 100.0 * (x[1] - x[0] * x[0]) * (x[1] - x[0] * x[0]);
  };
  const Numbers found = minimise(rosenbrock, {-1.2, 1.0}, 0.5, 1000, 1e-14);
  EXPECT_NEAR(found[0], 1.0, 1e-4);
  EXPECT_NEAR(found[1], 1.0, 1e-4);
  const Numbers one = minimise([](const Numbers& x) { return std::abs(x[0] - 3.0); }, {0.0}, 1.0, 200, 1e-12);
  EXPECT_NEAR(one[0], 3.0, 1e-6);
}

}  // namespace
}  // namespace penstock::training
