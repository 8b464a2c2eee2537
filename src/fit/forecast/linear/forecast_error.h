#pragma once

#include <array>
#include <cmath>
#include <optional>

#include "base/parallel_tasks.h"
#include "forecast/linear/linear_forecast.h"
#include "forecast/linear/origins.h"

/// How well forecasts that are fitted to beginnings of series do behind them.
namespace penstock::training {

/// Shares of the rows; what follows each scores a choice.
using Beginnings = std::array<double, 5>;

/// Evenly spaced. The first holds two seasons and a few rows to learn from, so that those who know of a season are not
/// judged by what they say before they have seen it twice.
Beginnings beginnings_with(ManySeries z, Index season);

/// Logarithm of the mean square error of forecasts behind the first `share` of the rows. The mean over several
/// beginnings is then one of ratios: where a series is wild, one beginning does not outvote the others.
double log_error_behind(ManySeries z, double share, const LinearForecast& forecast, const RawValue& raw);

/// Geometric mean of the errors behind all beginnings, of which `log_error` says the logarithm; infinite where one is.
template <class LogError>
double mean_error(const Beginnings& beginnings, const LogError& log_error) {
  double sum = 0.0;
  for (const double share : beginnings) {
    sum += log_error(share);
    if (sum == INFINITY) return INFINITY;
  }
  return std::exp(sum / static_cast<double>(beginnings.size()));
}

/// The mean error of what `fit` makes of each beginning, on `threads` threads; infinite where it makes nothing.
template <class Fit>
double error_behind(const Beginnings& beginnings, ManySeries z, const RawValue& raw, int threads, const Fit& fit) {
  Beginnings errors;
  side_by_side(threads, beginnings.size(), [&](std::size_t i) {
    const std::size_t latest_first = beginnings.size() - 1 - i;  // which takes longest
    const double share = beginnings[latest_first];
    const std::optional<LinearForecast> forecast = fit(beginnings_of(z, share));
    errors[latest_first] = forecast ? log_error_behind(z, share, *forecast, raw) : INFINITY;
  });
  auto error = errors.begin();
  return mean_error(beginnings, [&](double) { return *error++; });
}

}  // namespace penstock::training
