#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "penstock/data/dataset.h"
#include "penstock/model.h"

/// Scores of forecasts in the units of the data, compared with baselines that need no training.
namespace penstock {

/// Errors of forecasts, in the units of the data.
struct ForecastErrors {
  double rmse = 0.0;  ///< Root mean square error.
  double mae = 0.0;   ///< Mean absolute error.
  double mase = 0.0;  ///< MAE / mean absolute change over one season in the rows before the first forecast; 0: unknown.
  double smape = 0.0;  ///< Mean of 2 |error| / (|value| + |forecast|): 0 to 2.
};

/// Scores of predicted quantiles.
struct QuantileScore {
  std::vector<double> levels;  ///< Levels of the quantiles, ascending.
  double coverage = 0.0;  ///< Share of actual values from the lowest to the highest quantile; ideally levels.back() -
                          ///< levels.front().
  double pinball = 0.0;   ///< Mean pinball loss over all levels and values.
};

/// A baseline that needs no training, with its errors.
struct Rival {
  std::string name;  ///< "the last value", "a season ago" or "drift".
  ForecastErrors errors;
};

/// Scores of the forecasts of one column, over all actual values that are known.
struct ColumnScore {
  std::string column;
  Index scored = 0;                        ///< Number of forecast values that were compared.
  Index season = 1;                        ///< Rows of the seasonal period for MASE and the baselines; 1: no season.
  ForecastErrors model;                    ///< Errors of the model.
  std::optional<QuantileScore> quantiles;  ///< Scores of its quantiles; empty if the model has no ErrorDistribution.
  std::vector<Rival> rivals;               ///< Baselines on the same values.

  /// Returns the baseline with the smallest RMSE.
  const Rival& best_rival() const;
};

/// Scores the forecasts of a series, row by row.
class ForecastScorer {
 public:
  /// Makes a scorer for a forecast model's data. If SeriesDescription::season is unknown, it is detected in the rows.
  /// `levels` are the levels of the quantiles, ascending. Throws Error(invalid_argument) for no levels or unsorted
  /// ones.
  explicit ForecastScorer(const DataDescription& data, std::vector<double> levels = {0.1, 0.5, 0.9});

  /// Adds the next row.
  ///
  /// `values` [targets]: its raw targets; NaN where unknown. `forecasts` [horizon, targets]: the raw forecasts from
  /// this row; empty for the first rows of a file that only lead in. `widths` [targets]: IntervalTracker::widths(), or
  /// empty for the ErrorDistribution of training. Throws Error(invalid_argument) for wrong sizes, or a row without
  /// forecasts after one with forecasts.
  void add(std::span<const double> values, std::span<const double> forecasts, std::span<const double> widths = {});
  /// Starts another file with the next row: forecasts and baselines do not cross this border.
  void begin_file() { starts_.push_back(static_cast<Index>(places_.size())); }
  /// Returns the scores of each target with known values. Empty while no forecast could be compared.
  std::vector<ColumnScore> scores() const;

 private:
  struct File {
    Index first, end;
    Index scored;  // first row with forecasts; `end` if there is none
  };

  std::vector<File> files() const;
  /// Replaces each unknown value by the last known one.
  static std::vector<double> carry(std::vector<double> column, const std::vector<File>& files);
  ColumnScore score(std::size_t target, const std::vector<File>& files) const;
  QuantileScore score_quantiles(std::size_t target, std::span<const double> column,
                                const std::vector<File>& files) const;
  const double* forecasts_from(Index row, std::size_t target) const;

  DataDescription data_;
  std::vector<double> levels_;
  std::vector<double> values_;     // [rows, targets]
  std::vector<double> forecasts_;  // [rows with forecasts, horizon, targets]
  std::vector<double> widths_;     // [rows with forecasts, targets]
  std::vector<Index> places_;      // [rows]: index among the rows with forecasts; -1: none
  std::vector<Index> starts_;      // first rows of files
};

/// Scores of one of many series.
struct GroupScore {
  std::string group;  ///< Name of the series; empty for data without groups.
  std::vector<ColumnScore> columns;
};

/// Returns the scores over all forecast values of all series. MASE is the mean over the series, weighted by their
/// numbers of values. Baselines that some series lack are left out.
std::vector<ColumnScore> score_all(std::span<const GroupScore> groups);

/// Function that is called for each row of a series while it is scored.
///
/// `group`: name of the series. `data`: description with the scaling of the series and the ErrorDistribution of the
/// forecasts from this row. `values` and `forecasts`: as in ForecastScorer::add(). `date`: date of the row in seconds
/// since the start of 1970; empty if unknown. `lacking`: number of later rows whose known values the forecasts need but
/// the data lack; the values of the last row replaced them.
using ForecastWatcher =
    std::function<void(const std::string& group, const DataDescription& data, std::span<const double> values,
                       std::span<const double> forecasts, std::optional<double> date, Index lacking)>;

/// Scores a forecast model on the hold-out rows of a series dataset, one score per group. The model reads all earlier
/// rows of the file and group before each forecast. Data without groups give one score without a name. Empty if there
/// is no hold-out set or the data are not a series.
std::vector<GroupScore> score_groups_held_out(const Model& model, const Dataset& data, const Execution& execution = {},
                                              const ForecastWatcher& watch = {});
/// Returns score_all() of the groups.
std::vector<ColumnScore> score_held_out(const Model& model, const Dataset& data, const Execution& execution = {},
                                        const ForecastWatcher& watch = {});

/// Returns the seasonal period of a series in rows, detected by its autocorrelation. 1: no season, or too few rows to
/// tell.
Index find_season(std::span<const double> values);

}  // namespace penstock
