#pragma once

#include <vector>

#include "train/linear_forecast.h"

namespace penstock::training {

/// Exponential smoothing with additive errors, trend and season, which is linear in the rows that it has seen: here the
/// last `lags`, of which the first ones set its state.
struct Smoothing {
  double level = 0.5;       ///< How much of an error goes into the level ...
  double trend = 0.0;       ///< ... of that into the trend; 0: there is none ...
  double season = 0.0;      ///< ... and of the rest into the season.
  double damping = 1.0;     ///< Of the trend, from row to row.
  Index period = 1;         ///< Rows of a season; 1: none.
  double correction = 0.0;  ///< Share of the mean error, of each distance, that is added to forecasts.
  Index lags = 1;           ///< At least two seasons.
};

/// Smoothings to choose from, for a series of so many rows; none if there are too few.
std::vector<Smoothing> smoothings(Index rows, Index period);

LinearForecast smooth(const Smoothing& smoothing, Index horizon);

}  // namespace penstock::training
