#pragma once

#include <optional>
#include <vector>

#include "forecast/linear/arima.h"
#include "forecast/linear/linear_forecast.h"

/// Linear forecasts of a series from its own last rows, fitted in closed form: what a recurrent model has to beat, and
/// what it starts from.
namespace penstock::training {

/// Variables of the regression: rows, or their differences.
struct RegressionShape {
  bool difference = false, seasonal = false;  ///< From the row before, from the season before; may be both.
  Index lags = 1;                             ///< Number of lags of these.
  auto operator<=>(const RegressionShape&) const = default;  // NOLINT(modernize-use-nullptr): not one in sight
};

struct RegressionChoice {
  RegressionShape shape;
  bool intercept = false;
  bool rolled = false;      ///< One row ahead, over and over; or else a regression for every distance.
  std::size_t penalty = 0;  ///< Number of the ridge penalty.
  auto operator<=>(const RegressionChoice&) const = default;  // NOLINT(modernize-use-nullptr): not one in sight
};

/// Regressions whose weighted mean, the mean of smoothings, and an ARIMA make the forecast; none of them: the last
/// value is.
struct LinearChoice {
  struct Part {
    RegressionChoice regression;
    double error = 0.0;   ///< Mean square error where it was chosen, in the unit of `raw`.
    double weight = 1.0;  ///< All of them together have 1.
  };

  Index horizon = 1, season = 1;
  double error = 0.0;  ///< The lesser of that of the regressions' mean and that of the smoothings'.
  std::vector<Part> parts;
  double smoothing = 0.0;  ///< Share of the smoothings ...
  Index window = 1;        ///< ... and rows that these read.
  std::optional<ArimaOrders> arima = std::nullopt;
  double arima_share = 0.0;  ///< The regressions have the rest of 1.
  Index arima_window = 1;    ///< Rows that the ARIMA reads.
};

/// Chooses differences, the number of lags, a ridge penalty and whether forecasts further ahead are rolled out, by how
/// well each forecasts what follows five beginnings of the series. The best of every kind takes part, with a weight
/// that falls with its error: a mean of several is safer than the best of a few thousand choices. The mean of
/// smoothings and an ARIMA stand beside them with shares that are near to equal. Nothing is chosen that reads more rows
/// than nine in ten of the series have. Errors can be compared between choices with the same `longest_season`: the
/// beginnings hold two of those as far as a series has them. The choice is the same on any number of threads, from
/// each of which `raw` is called. `zero` is the z of a value of 0, if all series have the same, to grow from.
LinearChoice choose_linear_forecast(ManySeries z, Index horizon, Index season, Index longest_season,
                                    const RawValue& raw, int threads = 1, std::optional<double> zero = std::nullopt);
LinearForecast fit_linear_forecast(ManySeries z, const LinearChoice& choice, std::optional<double> zero = std::nullopt);

}  // namespace penstock::training
