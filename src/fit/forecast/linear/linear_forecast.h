#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "penstock/types.h"

namespace penstock::training {

/// Several series that are forecast alike, scaled alike.
using ManySeries = std::span<const std::span<const double>>;
/// Turns a value of a row of one of them into the unit in which errors count.
using RawValue = std::function<double(std::size_t series, Index row, double z)>;

/// z_{t+ahead} = bias + sum_k weights_k z_{t-k}, for ahead = 1 .. horizon.
struct LinearForecast {
  Index lags = 1, horizon = 1;
  std::vector<double> weights;  ///< [lags, horizon], the current row first
  std::vector<double> bias;     ///< [horizon]

  /// The forecasts [horizon] from a row that has lags - 1 rows before it.
  void forecast_from(std::span<const double> z, Index row, std::span<double> forecasts) const;
  /// The forecast `ahead` rows (from 1) behind that row.
  double at(std::span<const double> z, Index row, Index ahead) const {
    std::vector<double> forecasts(static_cast<std::size_t>(horizon));
    forecast_from(z, row, forecasts);
    return forecasts[static_cast<std::size_t>(ahead - 1)];
  }
};

/// A weighted mean of forecasts with the same horizon.
class MeanForecast {
 public:
  explicit MeanForecast(Index horizon)
      : mean_{.lags = 0, .horizon = horizon, .weights = {}, .bias = std::vector<double>(horizon, 0.0)} {}

  void add(double weight, const LinearForecast& forecast) {
    mean_.lags = std::max(mean_.lags, forecast.lags);
    mean_.weights.resize(std::max(mean_.weights.size(), forecast.weights.size()), 0.0);
    for (std::size_t i = 0; i < forecast.weights.size(); ++i) mean_.weights[i] += weight * forecast.weights[i];
    for (std::size_t h = 0; h < forecast.bias.size(); ++h) mean_.bias[h] += weight * forecast.bias[h];
    sum_ += weight;
  }
  /// Returns the sum of the weights so far.
  double sum() const { return sum_; }
  /// Returns the mean; nothing if no forecast has a weight.
  std::optional<LinearForecast> take() {
    if (!(sum_ > 0.0)) return std::nullopt;
    for (double& weight : mean_.weights) weight /= sum_;
    for (double& bias : mean_.bias) bias /= sum_;
    return std::move(mean_);
  }

 private:
  LinearForecast mean_;
  double sum_ = 0.0;
};

}  // namespace penstock::training
