#pragma once

#include <span>
#include <string>
#include <vector>

#include "penstock/data.h"

/// How well a model does on data, in the data's own units, and how well those do that cost nothing.
namespace penstock {

struct ForecastErrors {
  double rmse = 0.0;   ///< Root of the mean square error.
  double mae = 0.0;    ///< Mean absolute error.
  double mase = 0.0;   ///< The latter over that of "a season ago" one season ahead, in the rows before; 0: unknown.
  double smape = 0.0;  ///< Mean of 2 |error| / (|value| + |forecast|), 0 to 2.
};

/// A way to forecast that needs no training.
struct Rival {
  std::string name;  ///< "the last value", "a season ago", "drift"
  ForecastErrors errors;
};

/// Of one column, over all its forecasts whose value is known.
struct ColumnScore {
  std::string column;
  Index scored = 0;  ///< Forecast values that were compared.
  Index season = 1;  ///< Rows, as MASE and the rivals take it; 1: none.
  ForecastErrors model;
  std::vector<Rival> rivals;

  /// The rival of the smallest RMSE.
  const Rival& best_rival() const;
};

/// Takes a series row by row with the forecasts that were made at each.
class ForecastScorer {
 public:
  /// For a forecast model's data. A season that it does not know is found in the rows.
  explicit ForecastScorer(const DataDescription& data) : data_(data) {}

  /// The next row: its values of the targets, raw [targets]; and what was forecast from it, raw [horizon, targets], or
  /// nothing for a row that only leads in.
  void add(std::span<const double> values, std::span<const double> forecasts);
  /// One score a target. Empty as long as no forecast could be compared.
  std::vector<ColumnScore> scores() const;

 private:
  ColumnScore score(std::size_t target) const;

  DataDescription data_;
  std::vector<double> values_;    // [rows, targets]
  std::vector<float> forecasts_;  // [rows from the first that forecast, horizon, targets]
  Index rows_ = 0, first_ = 0;    // the first row whose forecasts count
};

/// Of labels.
struct LabelScore {
  Index scored = 0;
  double accuracy = 0.0;
  double macro_f1 = 0.0;                      ///< Mean over the classes that occur, in truth or in answers.
  std::vector<std::vector<Index>> confusion;  ///< [truth][answer]
  Index majority = 0;                         ///< The class that occurs most ...
  double majority_accuracy = 0.0;             ///< ... and what always answering it would score.
};

/// From counts [truth][answer].
LabelScore score_labels(std::vector<std::vector<Index>> confusion);

/// Rows after which a series repeats itself, found in its autocorrelation; 1: it does not, or there are too few rows to
/// tell.
Index find_season(std::span<const double> values);

}  // namespace penstock
