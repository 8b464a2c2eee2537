#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "penstock/data_description.h"

namespace penstock {

/// How wide the errors of one target have been of late, in units of what a Spread says of them: a mean of their squares
/// that forgets within some ten rows, times a correction that grows with every value outside of its interval and
/// shrinks with every value within (adaptive conformal inference, Gibbs and Candès 2021), so that in the long run
/// intervals hold as much as they say whatever the errors do.
class RecentWidth {
 public:
  /// What a row says of the forecasts of it: the mean square of their errors in units of their scales, and the share of
  /// them that was off by more than said less the share that should be.
  void see(double mean_square, double excess);
  double width() const;

  /// Two numbers, to go on from later.
  float square() const { return square_; }
  float correction() const { return correction_; }
  /// Throws Error(invalid_argument) for what no errors lead to.
  void restore(float square, float correction);

 private:
  float square_ = 1.0f;
  float correction_ = 0.0f;  // logarithm of a factor
};

/// Follows a series row by row beside the model that forecasts it, and says how far its next forecasts may be off:
/// where the latest ones were off by more than errors used to be, intervals are wider, and the other way round. Errors
/// are only known of targets that the model reads; others keep the width that training found.
class SpreadTracker {
 public:
  /// Of a forecast model's data with the scaling of the series. Without a spread there is nothing to follow.
  explicit SpreadTracker(const DataDescription& data);

  /// The next row: its inputs [I] and what is forecast from it [horizon, targets], all normalised, and its values of
  /// the targets, raw [targets]. Where one is not a number, the row did not have it, and what the model reads in its
  /// place says nothing of errors; without any, all are what the model reads.
  void add(std::span<const float> features, std::span<const float> forecasts, std::span<const double> values = {});

  /// Of what is forecast from the latest row.
  const Spread& spread() const { return now_; }
  /// By what the scales of each target are multiplied in it.
  const std::vector<double>& widths() const { return widths_; }

  /// [targets, 2], as Spread::Ending keeps them.
  std::vector<float> recent() const;

  /// The next row is the first of a series.
  void reset();

  /// To go on from later, to the bit; empty without a spread.
  std::vector<float> state() const;
  /// Throws Error(invalid_argument) unless state() of such a tracker has returned it. Nothing: the start of a series.
  void restore(std::span<const float> state);

 private:
  /// A row that forecasts were made from.
  struct Row {
    std::vector<float> values;     // [targets], normalised as targets
    std::vector<float> forecasts;  // [distances, targets]
    std::vector<float> widths;     // [targets] of their intervals
  };

  bool follows() const { return !data_.spread.empty(); }
  std::size_t targets() const { return data_.targets.size(); }
  const Row& before(std::size_t rows) const;
  std::vector<double> read_values(std::span<const float> features) const;
  void see_errors(std::span<const double> values);
  void go_on_from_ending();
  bool ends_here(const Spread::Ending& ending) const;
  void set_widths();

  DataDescription data_;
  std::vector<std::optional<std::size_t>> sources_;  // [targets]: the input that has its value
  Spread now_;
  std::vector<RecentWidth> recent_;  // [targets]
  std::vector<double> widths_;       // [targets]
  std::vector<Row> rows_;            // the latest ones, as a ring
  std::size_t seen_ = 0;             // rows
};

/// A forecast of a model of series in the units of its data: of output `output` of `outputs` [horizon, targets], which
/// are normalised. With a level, the quantile of that level.
double raw_forecast(const DataDescription& data, const Spread& spread, std::span<const float> outputs,
                    std::size_t output, std::optional<double> level = std::nullopt);

}  // namespace penstock
