#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "penstock/description/column.h"

/// Distribution of the errors of forecasts.
namespace penstock {

/// Distribution of forecast errors, from which prediction intervals follow: a scale for each horizon step, and one
/// shape for all. fit_error_distribution() estimates it from held-out forecasts. Empty: unknown.
struct ErrorDistribution {
  std::vector<double> levels;     ///< Levels of `quantiles`, ascending, within (0, 1).
  std::vector<double> quantiles;  ///< [levels, targets], ascending along levels: error quantiles in units of `scales`.
  std::vector<double> scales;     ///< [horizon, targets]
  /// [targets]: 1 if errors are log(value / forecast), because they grow with the value; 0 if they are value -
  /// forecast, normalised.
  std::vector<std::uint8_t> relative;
  /// Width of the errors at the end of a training series, for forecasts by models that had not seen them. A
  /// IntervalTracker continues from there.
  struct Ending {
    std::string group;          ///< Name of the series; empty without groups.
    std::vector<float> values;  ///< [rows, targets], normalised: the last values, by which the end is recognised.
    std::vector<float> widths;  ///< [targets, 2]: square and correction of RecentWidth.
  };
  std::vector<Ending> endings;

  /// Returns whether the distribution is unknown.
  bool empty() const { return levels.empty(); }
  /// Throws Error(invalid_argument) if the distribution is unknown or does not cover these levels.
  void check(std::span<const double> quantile_levels) const;
  /// Returns, as a raw value, a quantile of the value that output `output` of [horizon, targets] forecasts.
  /// `normalised` is the forecast and `column` its target. If errors are relative and the forecast is not positive,
  /// returns the forecast. Throws Error(invalid_argument) for a level outside `levels`.
  double quantile(double level, Index output, const Column& column, double normalised) const;
  /// Returns the error quantile of a level for an output, as a normalised difference or a logarithm (`relative`).
  double error(double level, Index output) const;
  /// Returns the error of a forecast for target number `target`: between a raw value and the normalised forecast. NaN
  /// if errors are relative and the ratio does not exist.
  double error_between(double value, double forecast, std::size_t target, const Column& column) const;
};

}  // namespace penstock
