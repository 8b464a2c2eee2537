#pragma once

#include <optional>
#include <span>
#include <vector>

#include "penstock/data_description.h"

/// Prediction intervals on a stream: widths that follow the latest forecast errors.
namespace penstock {

/// Recent width of the forecast errors of one target, as a factor of its ErrorDistribution.
///
/// The width is a root mean square of recent errors, over about ten rows, times a correction. The correction grows with
/// every actual value outside its interval and shrinks with every value inside (adaptive conformal inference, Gibbs and
/// Candès 2021). In the long run intervals then have their nominal coverage, however the errors change.
class RecentWidth {
 public:
  /// Updates the width with the errors of the forecasts of one row. `mean_square`: their mean square in units of
  /// ErrorDistribution::scales. `excess`: share of values outside their interval minus its nominal share.
  void see(double mean_square, double excess);
  /// Returns the factor by which intervals are to be widened; 1: as in training.
  double width() const;

  /// square() and correction() are the state, for restore().
  float square() const { return square_; }
  float correction() const { return correction_; }
  /// Continues from a state. Throws Error(invalid_argument) for values that see() cannot produce.
  void restore(float square, float correction);

 private:
  float square_ = 1.0f;
  float correction_ = 0.0f;  // logarithm of the factor
};

/// Adapts the prediction intervals of a model to its latest errors on a stream: larger errors than in training widen
/// the next intervals, smaller errors narrow them.
///
/// Errors are known only for targets that are also inputs; the intervals of other targets keep the width of training.
class IntervalTracker {
 public:
  /// Makes a tracker for a forecast model's data, with the scaling of the series (DataDescription::of_group()). Without
  /// a distribution it does nothing.
  explicit IntervalTracker(const DataDescription& data);

  /// Adds the next row.
  ///
  /// `features` [I]: its normalised inputs. `forecasts` [horizon, targets]: the normalised forecasts from it. `values`
  /// [targets]: its raw targets, NaN where the row has none (RowReader::target_values()); empty: the values in
  /// `features`. Throws Error(invalid_argument) for wrong sizes.
  void add(std::span<const float> features, std::span<const float> forecasts, std::span<const double> values = {});

  /// Returns the distribution of the forecasts from the latest row.
  const ErrorDistribution& distribution() const { return now_; }
  /// Returns the factors [targets] by which the scales of training are multiplied in distribution().
  const std::vector<double>& widths() const { return widths_; }

  /// Returns square and correction of each RecentWidth, [targets, 2], as in ErrorDistribution::Ending::widths.
  std::vector<float> recent() const;

  /// Starts a new series with the next row.
  void reset();

  /// Returns the state for restore(), which continues bit for bit; empty without a distribution.
  std::vector<float> state() const;
  /// Continues from a state that state() returned; empty: the start of a series. Throws Error(invalid_argument) for a
  /// state of another tracker.
  void restore(std::span<const float> state);

 private:
  /// A row with the forecasts from it.
  struct Row {
    std::vector<float> values;     // [targets], normalised as targets
    std::vector<float> forecasts;  // [distances, targets]
    std::vector<float> widths;     // [targets] of their intervals
  };

  bool follows() const { return !data_.series.errors.empty(); }
  std::size_t targets() const { return data_.targets.size(); }
  const Row& before(std::size_t rows) const;
  std::vector<double> read_values(std::span<const float> features) const;
  void see_errors(std::span<const double> values);
  void go_on_from_ending();
  bool ends_here(const ErrorDistribution::Ending& ending) const;
  void set_widths();

  DataDescription data_;
  std::vector<std::optional<std::size_t>> sources_;  // [targets]: the input with its value
  ErrorDistribution now_;
  std::vector<RecentWidth> recent_;  // [targets]
  std::vector<double> widths_;       // [targets]
  std::vector<Row> rows_;            // the latest ones, as a ring
  std::size_t seen_ = 0;             // rows
};

/// Returns a forecast in the units of the data: output `output` of the normalised `outputs` [horizon, targets]. With a
/// level, returns that quantile by `distribution`. Throws Error(invalid_argument) for a level that the distribution
/// does not cover.
double raw_forecast(const DataDescription& data, const ErrorDistribution& distribution, std::span<const float> outputs,
                    std::size_t output, std::optional<double> level = std::nullopt);

}  // namespace penstock
