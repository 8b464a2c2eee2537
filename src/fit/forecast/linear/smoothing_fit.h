#pragma once

#include <optional>
#include <vector>

#include "forecast/linear/smoothing.h"

namespace penstock::training {

/// Beyond it solving for the state that a smoothing begins with takes seconds.
inline constexpr Index longest_smoothed_period = 60;

/// A smoothing with the constants that fit series best.
struct FittedSmoothing {
  Smoothing smoothing;
  double information = 0.0;  ///< Akaike's criterion, corrected for few rows: less is better.
};

/// Rows that smoothings read of series of so many; none if these are too few for a period.
std::optional<Index> smoothing_window(Index rows, Index period);

/// Fits smoothings with and without a trend, damped or not, and with a season of that period or without one (1). Leaves
/// out those for which there are too few rows.
std::vector<FittedSmoothing> fit_smoothings(ManySeries z, Index period, Index horizon);

/// Fits a smoothing whose level grows by a share of itself from row to row; nothing unless all values lie above `zero`.
std::optional<FittedSmoothing> fit_growing_smoothing(ManySeries z, double zero, Index horizon);

/// The mean of all that fit, with and without the season, weighted by how likely Akaike's criterion makes each. The one
/// whose level grows from `zero` on has half of that weight: such growth seldom lasts. Nothing if there are too few
/// rows, or all are equal.
std::optional<LinearForecast> fit_mean_smoothing(ManySeries z, Index period, Index lags, Index horizon,
                                                 std::optional<double> zero = std::nullopt);

struct LikeliestPeriod {
  Index rows = 1;
  double by = 0.0;  ///< Difference of Akaike's criterion to smoothings without a season.
};

/// The period with which smoothings fit clearly better than without a season, or 1. `threads` fit them side by side.
LikeliestPeriod likeliest_period(ManySeries z, const std::vector<Index>& periods, Index horizon, int threads = 1);

}  // namespace penstock::training
