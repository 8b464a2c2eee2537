#pragma once

#include <optional>
#include <span>
#include <vector>

#include "forecast/linear/linear_forecast.h"

namespace penstock::training {

/// Numbers of terms, by themselves or of seasons.
struct ArimaTerms {
  Index ar = 0, difference = 0, ma = 0;
  auto operator<=>(const ArimaTerms&) const = default;  // NOLINT(modernize-use-nullptr): not one in sight
};

/// (p, d, q)(P, D, Q) of a period, in the letters of Box and Jenkins.
struct ArimaOrders {
  ArimaTerms plain = {}, seasonal = {};
  Index period = 1;       ///< Rows of a season; 1: none, and no seasonal terms.
  bool has_mean = false;  ///< Differences have a mean: with one difference the series drifts.
  auto operator<=>(const ArimaOrders&) const = default;  // NOLINT(modernize-use-nullptr): not one in sight

  Index constants() const { return plain.ar + plain.ma + seasonal.ar + seasonal.ma + static_cast<Index>(has_mean); }
  Index rows_lost() const { return plain.difference + seasonal.difference * period; }
};

/// A polynomial in the backshift operator: the coefficient of each lag, from lag 0.
using LagPolynomial = std::vector<double>;

/// A seasonal autoregressive integrated moving average: ar(B) (w_t - mean) = ma(B) e_t of differences w.
struct Arima {
  ArimaOrders orders = {};
  LagPolynomial ar = {1.0}, ma = {1.0};  ///< Plain and seasonal factors multiplied.
  double mean = 0.0;
};

/// Makes an ARIMA whose coefficients come from unbounded numbers [constants]. Every factor has partial autocorrelations
/// inside the unit circle, so that it is stationary or invertible (Monahan, 1984). `spread` is the unit of the mean.
Arima arima_of(const ArimaOrders& orders, std::span<const double> numbers, double spread);

/// (1 - B)^d (1 - B^s)^D.
LagPolynomial difference_polynomial(const ArimaOrders& orders);
/// z differenced [rows - rows_lost]; nothing if it has no more rows than are lost.
std::vector<double> differenced(const ArimaOrders& orders, std::span<const double> z);

/// Returns the autocovariances of differences at distances 0 to `count` - 1, with errors of variance 1; empty if the
/// differences are not stationary.
std::vector<double> autocovariances(const Arima& arima, Index count);

/// -2 log likelihood of differences `w` of series, each by itself, with the variance of the errors that makes it least,
/// but for constants of the number of rows. Exact: by the recursion of Durbin and Levinson. Infinite where it is not
/// defined.
double exact_deviance(const Arima& arima, ManySeries w);
/// Returns an approximation of exact_deviance(): errors before the first row count as zero, and each series loses as
/// many rows as the autoregression reaches back, up to a third. It is fast enough for a search.
double conditional_deviance(const Arima& arima, ManySeries w);

/// Returns the linear forecast from the last `lags` rows, which are more than are lost, with the least mean square
/// error; none if the matrix of their covariances is numerically singular.
std::optional<LinearForecast> forecast_of(const Arima& arima, Index lags, Index horizon);

}  // namespace penstock::training
