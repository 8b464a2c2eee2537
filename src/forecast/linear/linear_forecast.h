#pragma once

#include <functional>
#include <span>
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

  /// The forecast `ahead` (from 1) of row `row`, which has lags - 1 rows before it.
  double at(std::span<const double> z, Index row, Index ahead) const;
};

}  // namespace penstock::training
