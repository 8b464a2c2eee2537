#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "train/linear_forecast.h"
#include "train/smoothing.h"

/// Linear forecasts of a series from its own last rows, fitted in closed form: what a recurrent model has to beat, and
/// what it starts from.
namespace penstock::training {

/// What is regressed on: rows, or their differences.
struct RegressionShape {
  bool difference = false, seasonal = false;  ///< From the row before, from the season before; may be both.
  Index lags = 1;                             ///< Of these.
  auto operator<=>(const RegressionShape&) const = default;  // NOLINT(modernize-use-nullptr): not one in sight
};

struct RegressionChoice {
  RegressionShape shape;
  bool intercept = false;
  bool rolled = false;      ///< One row ahead, over and over; or else a regression for every distance.
  std::size_t penalty = 0;  ///< Number of the ridge penalty.
  auto operator<=>(const RegressionChoice&) const = default;  // NOLINT(modernize-use-nullptr): not one in sight
};

/// Regressions and smoothings whose weighted mean is the forecast; none: the last value is.
struct LinearChoice {
  struct Part {
    RegressionChoice regression;
    std::optional<Smoothing> smoothing;  ///< Instead of a regression.
    double error = 0.0;                  ///< Mean square error where it was chosen, in the unit of `raw`.
    double weight = 1.0;
  };

  Index horizon = 1, season = 1;
  double error = 0.0;  ///< Weighted mean of those of the parts.
  std::vector<Part> parts;
};

/// Several series that are forecast alike, scaled alike.
using ManySeries = std::span<const std::span<const double>>;
/// Turns a value of one of them into the unit in which errors count.
using RawValue = std::function<double(std::size_t series, double z)>;

/// Chooses constants of smoothing, differences, the number of lags, a ridge penalty and whether forecasts further ahead
/// are rolled out, by how well each forecasts what follows five beginnings of the series. The best of every kind takes
/// part, with a weight that falls with its error: a mean of several is safer than the best of a few thousand choices.
/// Nothing is chosen that reads more rows than nine in ten of the series have.
LinearChoice choose_linear_forecast(ManySeries z, Index horizon, Index season, const RawValue& raw);
LinearForecast fit_linear_forecast(ManySeries z, const LinearChoice& choice);

/// The same of one series.
LinearChoice choose_linear_forecast(std::span<const double> z, Index horizon, Index season,
                                    const std::function<double(double)>& raw);
LinearForecast fit_linear_forecast(std::span<const double> z, const LinearChoice& choice);

}  // namespace penstock::training
