// ARIMA models: autocovariances, likelihood and forecasts against closed forms and dense algebra, and what is chosen.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "base/random.h"
#include "forecast/linear/arima_fit.h"
#include "forecast/linear/smoothing.h"

namespace penstock::training {
namespace {

using Numbers = std::vector<double>;

std::span<const double> span_of(const Numbers& z) { return z; }

/// Rounding of sums of so many terms of size one, times the condition of what is solved.
double rounding(Index terms, double condition = 1.0) { return 4.0 * static_cast<double>(terms) * condition * 0x1p-53; }

Arima arma(const LagPolynomial& ar, const LagPolynomial& ma, double mean = 0.0) {
  return {.orders = {}, .ar = ar, .ma = ma, .mean = mean};
}

/// By the definition: sums of products of the weights that errors have in a row.
Numbers autocovariances_by_definition(const Arima& arima, Index count, Index terms) {
  Numbers psi;
  for (Index j = 0; j < terms; ++j) {
    double value = j < static_cast<Index>(arima.ma.size()) ? arima.ma[j] : 0.0;
    for (Index k = 1; k < static_cast<Index>(arima.ar.size()) && k <= j; ++k) value -= arima.ar[k] * psi[j - k];
    psi.push_back(value);
  }
  Numbers result(static_cast<std::size_t>(count), 0.0);
  for (Index k = 0; k < count; ++k) {
    for (Index j = 0; j + k < terms; ++j) result[k] += psi[j] * psi[j + k];
  }
  return result;
}

/// A x = b by Gauss and Jordan; the logarithm of the determinant of A [n, n].
double solve_densely(Numbers a, Index n, Numbers& b) {
  double log_determinant = 0.0;
  for (Index i = 0; i < n; ++i) {
    log_determinant += std::log(a[i * n + i]);
    for (Index row = 0; row < n; ++row) {
      if (row == i) continue;
      const double factor = a[row * n + i] / a[i * n + i];
      for (Index k = i; k < n; ++k) a[row * n + k] -= factor * a[i * n + k];
      b[row] -= factor * b[i];
    }
  }
  for (Index i = 0; i < n; ++i) b[i] /= a[i * n + i];
  return log_determinant;
}

Numbers toeplitz(const Numbers& covariances, Index n) {
  Numbers a;
  for (Index i = 0; i < n; ++i) {
    for (Index j = 0; j < n; ++j) a.push_back(covariances[std::abs(i - j)]);
  }
  return a;
}

Numbers noise(Index rows, std::uint64_t seed) {
  Random random(seed);
  Numbers z(static_cast<std::size_t>(rows));
  for (double& value : z) value = random.normal();
  return z;
}

const Arima kSeasonalExample = arma({1.0, -0.5, 0.0, 0.0, 0.3, -0.15}, {1.0, 0.4, 0.0, 0.0, -0.6, -0.24}, 0.3);

TEST(Arima, AutocovariancesAreThoseOfClosedForms) {
  constexpr double phi = 0.8, theta = -0.45;
  const Numbers ar = autocovariances(arma({1.0, -phi}, {1.0}), 40);
  const Numbers ma = autocovariances(arma({1.0}, {1.0, theta}), 4);
  const Numbers both = autocovariances(arma({1.0, -phi}, {1.0, theta}), 40);
  const double scale = 1.0 / (1.0 - phi * phi);
  for (Index k = 0; k < 40; ++k) {
    EXPECT_NEAR(ar[k], std::pow(phi, k) * scale, rounding(40, scale)) << k;
    const double mixed = (1.0 + phi * theta) * (phi + theta) * scale;
    const double expected = k == 0 ? (1.0 + 2.0 * phi * theta + theta * theta) * scale : mixed * std::pow(phi, k - 1);
    EXPECT_NEAR(both[k], expected, rounding(40, scale)) << k;
  }
  EXPECT_NEAR(ma[0], 1.0 + theta * theta, rounding(2));
  EXPECT_NEAR(ma[1], theta, rounding(2));
  EXPECT_EQ(ma[2], 0.0);
  const Numbers seasonal = autocovariances(kSeasonalExample, 23);
  const Numbers defined = autocovariances_by_definition(kSeasonalExample, 23, 400);  // 0.75^400 is far below rounding
  for (Index k = 0; k < 23; ++k) EXPECT_NEAR(seasonal[k], defined[k], rounding(400, defined[0])) << k;
}

TEST(Arima, AnAutoregressionThatIsNotStationaryHasNone) {
  EXPECT_TRUE(autocovariances(arma({1.0, -1.0}, {1.0}), 3).empty());
  EXPECT_TRUE(autocovariances(arma({1.0, 0.0, 1.2}, {1.0}), 3).empty());
  const Numbers z = noise(20, 1);
  EXPECT_TRUE(std::isinf(exact_deviance(arma({1.0, -1.0}, {1.0}), std::array{span_of(z)})));
}

TEST(Arima, FactorsHaveTheirPartialAutocorrelations) {
  const ArimaOrders orders{.plain = {.ar = 2, .ma = 1}, .seasonal = {.ar = 1}, .period = 4, .has_mean = true};
  ASSERT_EQ(orders.constants(), 5);
  const Arima arima = arima_of(orders, std::array{0.4, -0.3, 0.7, 0.2, 1.5}, 2.0);
  constexpr double nearest = 0.98;
  const double first = nearest * std::tanh(0.4), second = nearest * std::tanh(-0.3), last = nearest * std::tanh(0.2);
  const double a = first * (1.0 - second), b = second;
  const LagPolynomial expected = {1.0, -a, -b, 0.0, -last, a * last, b * last};
  ASSERT_EQ(arima.ar.size(), expected.size());
  for (std::size_t k = 0; k < expected.size(); ++k) EXPECT_NEAR(arima.ar[k], expected[k], rounding(4)) << k;
  ASSERT_EQ(arima.ma.size(), 2u);
  EXPECT_NEAR(arima.ma[1], -nearest * std::tanh(0.7), rounding(4));
  EXPECT_DOUBLE_EQ(arima.mean, 3.0);
}

TEST(Arima, ExactDevianceIsThatOfTheNormalDistribution) {
  for (const Index rows : {1, 2, 7, 31, 64}) {
    const Numbers one = noise(rows, 5), other = noise(rows / 2 + 1, 6);
    const Numbers covariances = autocovariances_by_definition(kSeasonalExample, rows + 1, 400);
    double logs = 0.0, squares = 0.0, count = 0.0;
    for (const Numbers& z : {one, other}) {
      const auto n = static_cast<Index>(z.size());
      Numbers centred = z;
      for (double& value : centred) value -= kSeasonalExample.mean;
      Numbers solved = centred;
      logs += solve_densely(toeplitz(covariances, n), n, solved);
      for (Index i = 0; i < n; ++i) squares += centred[i] * solved[i];
      count += static_cast<double>(n);
    }
    const double expected = count * std::log(squares / count) + logs;
    const double deviance = exact_deviance(kSeasonalExample, std::array{span_of(one), span_of(other)});
    // Eigenvalues of the covariances lie between the least and the greatest value of the spectrum, whose ratio is below
    // 1e4.
    EXPECT_NEAR(deviance, expected, rounding(rows * rows, 1e4)) << rows;
  }
}

TEST(Arima, ConditionalDevianceTakesErrorsBeforeAsZero) {
  const Numbers z = {0.3, -0.2, 0.9, 1.4, -0.7, 0.1, 0.6, -0.4};
  constexpr double phi = 0.6, theta = 0.35, mean = 0.1;
  double squares = 0.0, before = 0.0;
  for (std::size_t t = 1; t < z.size(); ++t) {
    before = (z[t] - mean) - phi * (z[t - 1] - mean) - theta * before;
    squares += before * before;
  }
  const double expected = 7.0 * std::log(squares / 7.0);
  EXPECT_NEAR(conditional_deviance(arma({1.0, -phi}, {1.0, theta}, mean), std::array{span_of(z)}), expected,
              rounding(64));
}

// Expected values: R's output of arima(log(AirPassengers), c(0, 1, 1), seasonal = c(0, 1, 1)), also in the books:
// -0.4018 and -0.5569, an error of variance 0.001348 and a log likelihood of 244.7.
TEST(Arima, OfTheAirlinesPassengersIsThatOfTheBooks) {
  constexpr double passengers[] = {
      112, 118, 132, 129, 121, 135, 148, 148, 136, 119, 104, 118, 115, 126, 141, 135, 125, 149, 170, 170, 158,
      133, 114, 140, 145, 150, 178, 163, 172, 178, 199, 199, 184, 162, 146, 166, 171, 180, 193, 181, 183, 218,
      230, 242, 209, 191, 172, 194, 196, 196, 236, 235, 229, 243, 264, 272, 237, 211, 180, 201, 204, 188, 235,
      227, 234, 264, 302, 293, 259, 229, 203, 229, 242, 233, 267, 269, 270, 315, 364, 347, 312, 274, 237, 278,
      284, 277, 317, 313, 318, 374, 413, 405, 355, 306, 271, 306, 315, 301, 356, 348, 355, 422, 465, 467, 404,
      347, 305, 336, 340, 318, 362, 348, 363, 435, 491, 505, 404, 359, 310, 337, 360, 342, 406, 396, 420, 472,
      548, 559, 463, 407, 362, 405, 417, 391, 419, 461, 472, 535, 622, 606, 508, 461, 390, 432};
  Numbers z;
  for (const double value : passengers) z.push_back(std::log(value));
  const auto orders = choose_orders(std::array{span_of(z)}, 12);
  const ArimaOrders airline{.plain = {.difference = 1, .ma = 1}, .seasonal = {.difference = 1, .ma = 1}, .period = 12};
  ASSERT_TRUE(orders);
  EXPECT_TRUE(*orders == airline);
  const Arima arima = *fit_arima(std::array{span_of(z)}, airline);
  // The search stops where the deviance is flat to 1e-3: by its curvature, coefficients are within a twentieth of their
  // deviations, 0.09 and 0.073, of the best ones.
  EXPECT_NEAR(arima.ma[1], -0.4018, 0.0045);
  EXPECT_NEAR(arima.ma[12], -0.5569, 0.0045);
  const Numbers w = differenced(airline, z);
  const auto n = static_cast<double>(w.size());
  const double deviance = exact_deviance(arima, std::array{span_of(w)}) + n * (1.0 + std::log(2.0 * std::numbers::pi));
  EXPECT_NEAR(-0.5 * deviance, 244.7, 0.05);  // as many digits as are printed
}

TEST(Arima, ForecastsOfDifferencesAloneGoOn) {
  const Numbers z = noise(30, 9);
  const auto forecast_with = [&](Index plain, Index seasonal, double mean, Index ahead) {
    const ArimaOrders orders{.plain = {.difference = plain}, .seasonal = {.difference = seasonal}, .period = 4};
    return forecast_of({.orders = orders, .mean = mean}, 17, 9)->at(z, 29, ahead);
  };
  for (Index ahead = 1; ahead <= 9; ++ahead) {
    const Index season = 29 + ahead - 4 * ((ahead + 3) / 4);  // the latest known row of that season
    const double whole = static_cast<double>((ahead + 3) / 4), rows = static_cast<double>(ahead);
    EXPECT_NEAR(forecast_with(0, 0, 0.7, ahead), 0.7, rounding(30));
    EXPECT_NEAR(forecast_with(1, 0, 0.7, ahead), z[29] + 0.7 * rows, rounding(30));
    EXPECT_NEAR(forecast_with(0, 1, 0.7, ahead), z[season] + 0.7 * whole, rounding(30));
    EXPECT_NEAR(forecast_with(1, 1, 0.0, ahead), z[season] + whole * (z[29] - z[25]), rounding(300)) << ahead;
  }
}

TEST(Arima, ForecastsAreConditionalExpectations) {
  const Numbers z = noise(40, 11);
  for (const Index lags : {1, 5, 23}) {
    constexpr Index horizon = 6;
    const Numbers covariances = autocovariances_by_definition(kSeasonalExample, lags + horizon + 1, 400);
    const auto forecast = forecast_of(kSeasonalExample, lags, horizon);
    ASSERT_TRUE(forecast);
    Numbers solved;  // of the last rows, newest first
    for (Index k = 0; k < lags; ++k) solved.push_back(z[39 - k] - kSeasonalExample.mean);
    solve_densely(toeplitz(covariances, lags), lags, solved);
    for (Index ahead = 1; ahead <= horizon; ++ahead) {
      double expected = kSeasonalExample.mean;
      for (Index k = 0; k < lags; ++k) expected += covariances[k + ahead] * solved[k];
      EXPECT_NEAR(forecast->at(z, 39, ahead), expected, rounding(lags * lags, 1e4)) << lags << " " << ahead;
    }
  }
}

TEST(Arima, OfOneDifferenceAndAMovingAverageIsSmoothing) {
  constexpr double level = 0.4;
  const ArimaOrders orders{.plain = {.difference = 1, .ma = 1}};
  for (const Index lags : {80, 503}) {  // 0.6^80 is below rounding, so that it does not matter how each begins
    const auto forecast = forecast_of({.orders = orders, .ma = {1.0, level - 1.0}}, lags, 5);
    const LinearForecast smoothed = smooth({.level = level}, lags, 5);
    ASSERT_TRUE(forecast);
    for (std::size_t i = 0; i < smoothed.weights.size(); ++i) {
      // The state that smoothing begins with has a ridge of 1e-9.
      EXPECT_NEAR(forecast->weights[i], smoothed.weights[i], 1e-9) << lags << " " << i;
    }
  }
}

TEST(Arima, DifferencesAreTakenWhereLevelsOrSeasonsAskForThem) {
  int steady = 0, walks = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const Numbers still = noise(150, seed);
    Numbers walk, season;
    double at = 0.0;
    for (Index t = 0; t < 150; ++t) {
      walk.push_back(at += still[t]);
      season.push_back(still[t] + 3.0 * std::sin(std::numbers::pi * static_cast<double>(t) / 6.0));
    }
    steady += choose_differences(std::array{span_of(still)}, 12) == ArimaOrders{.period = 12} ? 1 : 0;
    walks += choose_differences(std::array{span_of(walk)}, 1).plain.difference == 1 ? 1 : 0;
    EXPECT_EQ(choose_differences(std::array{span_of(season)}, 12).seasonal.difference, 1) << seed;
    EXPECT_EQ(choose_differences(std::array{span_of(season)}, 1).period, 1);
  }
  // One in twenty by chance: more than seven of forty in one of 600 trials.
  EXPECT_GE(steady, 33);
  EXPECT_GE(walks, 33);
}

TEST(Arima, FindsTheCoefficientsThatMadeASeries) {
  constexpr double theta = -0.5, seasonal = -0.6;  // the model of the airline's passengers
  constexpr Index rows = 400, period = 12;
  const ArimaOrders orders{
      .plain = {.difference = 1, .ma = 1}, .seasonal = {.difference = 1, .ma = 1}, .period = period};
  for (const std::uint64_t seed : {1, 2, 3}) {
    const Numbers e = noise(rows + period + 1, seed);
    Numbers z;
    for (Index t = 0; t < rows; ++t) {
      const Index i = t + period + 1;
      double value = e[i] + theta * e[i - 1] + seasonal * e[i - period] + theta * seasonal * e[i - period - 1];
      if (t > period) value += z[t - 1] + z[t - period] - z[t - period - 1];
      z.push_back(value);
    }
    const auto arima = fit_arima(std::array{span_of(z)}, orders);
    ASSERT_TRUE(arima);
    const auto deviation = [](double coefficient) { return std::sqrt((1.0 - coefficient * coefficient) / 387.0); };
    EXPECT_NEAR(arima->ma[1], theta, 4.0 * deviation(theta)) << seed;
    EXPECT_NEAR(arima->ma[period], seasonal, 4.0 * deviation(seasonal)) << seed;
    EXPECT_NEAR(arima->ma[period + 1], arima->ma[1] * arima->ma[period], rounding(4));
  }
}

TEST(Arima, OfManySeriesLearnsFromAll) {
  constexpr double phi = 0.7;
  constexpr Index rows = 61, count = 11;
  std::vector<Numbers> all;
  std::vector<std::span<const double>> spans;
  for (std::uint64_t seed = 1; seed <= count; ++seed) {
    Numbers z = noise(rows, seed);
    for (Index t = 1; t < rows; ++t) z[t] += phi * z[t - 1];
    all.push_back(std::move(z));
  }
  for (const Numbers& each : all) spans.push_back(span_of(each));
  const auto arima = fit_arima(spans, {.plain = {.ar = 1}});
  ASSERT_TRUE(arima);
  EXPECT_NEAR(-arima->ar[1], phi, 4.0 * std::sqrt((1.0 - phi * phi) / (rows * count)));
  const auto orders = choose_orders(spans, 1);
  ASSERT_TRUE(orders);
  EXPECT_EQ(orders->plain.difference, 0);
  EXPECT_GE(orders->plain.ar + orders->plain.ma, 1);
}

TEST(Arima, FindsOrdersThatForecastAsWellAsThoseThatMadeASeries) {
  constexpr double first = 1.3, second = -0.7;  // a cycle of some nine rows
  for (const std::uint64_t seed : {1, 2, 3}) {
    const Numbers e = noise(1300, seed);
    Numbers z = {0.0, 0.0};
    for (std::size_t t = 2; t < e.size(); ++t) z.push_back(first * z[t - 1] + second * z[t - 2] + e[t]);
    const std::span<const double> learnt(z.data(), 300);
    const auto orders = choose_orders(std::array{learnt}, 1);
    ASSERT_TRUE(orders);
    EXPECT_EQ(orders->plain.difference, 0);
    const auto forecast = forecast_of(*fit_arima(std::array{learnt}, *orders), 30, 1);
    double squares = 0.0;
    for (Index t = 300; t + 1 < 1300; ++t) squares += std::pow(forecast->at(z, t, 1) - z[t + 1], 2);
    // Errors have variance 1, whose estimate from a thousand deviates by sqrt(2 / 1000); each of up to seven
    // coefficients that 300 rows are asked for adds 1 / 300.
    EXPECT_LT(squares / 999.0, 1.0 + 4.0 * std::sqrt(2.0 / 999.0) + 7.0 / 300.0) << seed;
    EXPECT_TRUE(*orders == *choose_orders(std::array{learnt}, 1));
  }
}

TEST(Arima, OfAConstantOrOfTooFewOrTooManyRowsIsNone) {
  const Numbers constant(60, 2.0), few = {1.0, 3.0, 2.0};
  EXPECT_FALSE(choose_orders(std::array{span_of(constant)}, 1));
  EXPECT_FALSE(fit_arima(std::array{span_of(constant)}, {.plain = {.ar = 1}}));
  EXPECT_FALSE(choose_orders(std::array{span_of(few)}, 1));
  EXPECT_FALSE(arima_window(49, 1));
  EXPECT_EQ(arima_window(50, 1), 24);
  EXPECT_EQ(arima_window(300, 12), 96);
  EXPECT_EQ(arima_window(1000, 24), 192);
  EXPECT_FALSE(arima_window(1001, 12));
  EXPECT_FALSE(arima_window(50, 12)) << "fewer than two seasons in half of the rows";
  EXPECT_FALSE(arima_window(500, 25));
}

}  // namespace
}  // namespace penstock::training
