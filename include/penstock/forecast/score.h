#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "penstock/data/dataset.h"
#include "penstock/model.h"

/// How well a model does on data, in the data's own units, and how well those do that cost nothing.
namespace penstock {

struct ForecastErrors {
  double rmse = 0.0;   ///< Root of the mean square error.
  double mae = 0.0;    ///< Mean absolute error.
  double mase = 0.0;   ///< The latter over that of "a season ago" one season ahead, in the rows before; 0: unknown.
  double smape = 0.0;  ///< Mean of 2 |error| / (|value| + |forecast|), 0 to 2.
};

/// Of quantiles of forecasts.
struct QuantileScore {
  std::vector<double> levels;  ///< Ascending
  double coverage = 0.0;  ///< Share of values between the lowest and the highest quantile; these say levels.back() -
                          ///< levels.front().
  double pinball = 0.0;   ///< Mean pinball loss over all levels and values.
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
  std::optional<QuantileScore> quantiles;  ///< Of a model that knows the spread of its forecasts.
  std::vector<Rival> rivals;

  /// The rival of the smallest RMSE.
  const Rival& best_rival() const;
};

/// Takes a series row by row with the forecasts that were made at each.
class ForecastScorer {
 public:
  /// For a forecast model's data. A season that it does not know is found in the rows. `levels` of quantiles,
  /// ascending.
  explicit ForecastScorer(const DataDescription& data, std::vector<double> levels = {0.1, 0.5, 0.9});

  /// The next row: its values of the targets, raw [targets], not numbers where they are not known; and what was
  /// forecast from it, raw [horizon, targets], or nothing for a row that only leads in, which the first ones of a file
  /// may do. `widths` [targets] are those of a SpreadTracker, or none for the spread as training found it.
  void add(std::span<const double> values, std::span<const double> forecasts, std::span<const double> widths = {});
  /// The next row is the first of another file: neither forecasts nor rivals reach across.
  void begin_file() { starts_.push_back(static_cast<Index>(places_.size())); }
  /// One score a target of which values are known. Empty as long as no forecast could be compared.
  std::vector<ColumnScore> scores() const;

 private:
  struct File {
    Index first, end;
    Index scored;  // the first row whose forecasts count; `end` if none does
  };

  std::vector<File> files() const;
  /// The last known value in the place of each that is not.
  static std::vector<double> carry(std::vector<double> column, const std::vector<File>& files);
  ColumnScore score(std::size_t target, const std::vector<File>& files) const;
  QuantileScore score_quantiles(std::size_t target, std::span<const double> column,
                                const std::vector<File>& files) const;
  const double* forecasts_from(Index row, std::size_t target) const;

  DataDescription data_;
  std::vector<double> levels_;
  std::vector<double> values_;     // [rows, targets]
  std::vector<double> forecasts_;  // [rows that forecast, horizon, targets]
  std::vector<double> widths_;     // [rows that forecast, targets]
  std::vector<Index> places_;      // of each row among those; -1: it only leads in
  std::vector<Index> starts_;      // first rows of files
};

/// The scores of one series of many.
struct GroupScore {
  std::string group;  ///< Its name; empty for data without groups.
  std::vector<ColumnScore> columns;
};

/// Over all forecast values of all series; MASE is the mean of theirs, each weighted by its number of values. Rivals
/// that some series lack are left out.
std::vector<ColumnScore> score_all(std::span<const GroupScore> groups);

/// Sees each row of a series as ForecastScorer::add() does: its values, and what was forecast from it. `data` is the
/// description with the scaling of the series, and the spread of what is forecast from the row. `date` is when the row
/// was, in seconds since the start of 1970, if that is read. `lacking`: of so many rows that the forecasts read what is
/// known in advance there is none, and those of the last row went in their place.
using ForecastWatcher =
    std::function<void(const std::string& group, const DataDescription& data, std::span<const double> values,
                       std::span<const double> forecasts, std::optional<double> date, Index lacking)>;

/// Scores a forecast model on the held-out rows of a series, each forecast by all rows of its file and group before it:
/// every group by itself; one without a name where there are no groups. Empty if nothing is held out, or the data are
/// no series.
std::vector<GroupScore> score_groups_held_out(const Model& model, const Dataset& data, const Execution& execution = {},
                                              const ForecastWatcher& watch = {});
/// The same over all groups.
std::vector<ColumnScore> score_held_out(const Model& model, const Dataset& data, const Execution& execution = {},
                                        const ForecastWatcher& watch = {});

/// Rows after which a series repeats itself, found in its autocorrelation; 1: it does not, or there are too few rows to
/// tell.
Index find_season(std::span<const double> values);

}  // namespace penstock
