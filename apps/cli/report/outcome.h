#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "answers/score_report.h"
#include "terminal/describe.h"

/// Results of a trained model, as records beside its metrics: the score, forecasts beside actual values, a text.
namespace penstock::cli::reporting {

/// The last rows of a series with what was forecast of them.
class ForecastTrace {
 public:
  explicit ForecastTrace(DataDescription data) : data_(std::move(data)) {}

  /// Adds a row as ForecastScorer::add() does, with the distribution and the date of its forecasts. `lacking`: rows
  /// whose values, which the forecasts need, are unknown; such forecasts are left out.
  void add(const ErrorDistribution& distribution, std::span<const double> values, std::span<const double> forecasts,
           std::optional<double> date, Index lacking = 0);

  /// One a target: {"kind": "forecast", "column", "first_row" of the file, "truth", "ahead": {"1": ..., horizon: ...}
  /// by how many rows before each the forecast was made, null where there is none, "quantiles": {"0.1", "0.9"} of the
  /// last of these if the model knows them, "to_come": what follows the last row, with "to_come_quantiles", "dates" of
  /// the rows in seconds since the start of 1970, null where they are not known; "lacking": of how many "rows" behind
  /// the last one it should be known what "columns" are, but is not, so that there is no forecast}.
  std::vector<Json> records() const;

 private:
  static constexpr std::size_t most_rows = 400;  // more cannot be told apart in a picture

  struct Row {
    std::vector<double> values;  // [targets]
    // [targets], of forecasts from it; empty without one
    std::vector<double> next, last;  // one row and the horizon ahead
    std::vector<double> low, high;   // quantiles of the latter
    std::optional<double> date;
  };
  bool knows_quantiles() const;
  /// Returns a quantile of one forecast; `output` is its place in [horizon, targets].
  double quantile(const ErrorDistribution& distribution, double level, std::size_t output, double forecast) const;
  void add_quantiles(const ErrorDistribution& distribution, Row& row) const;
  Json quantiles_to_come(std::size_t target, double level) const;
  /// Returns, for each row shown, the forecast made `steps` rows before.
  Json said_before(std::size_t target, Index steps, const std::vector<double> Row::*what) const;

  DataDescription data_;
  std::deque<Row> rows_;
  std::vector<double> latest_;         // [horizon, targets] from the last row, if there are any
  std::vector<double> latest_scales_;  // of the distribution of these
  Index lacking_ = 0;                  // of that row
  Index seen_ = 0;
};

/// The traces of all series of a model.
class ForecastTraces {
 public:
  /// Adds a row; arguments as of ForecastWatcher.
  void add(const std::string& group, const DataDescription& data, std::span<const double> values,
           std::span<const double> forecasts, std::optional<double> date, Index lacking);

  /// Records of the only series, or of the worst, the median and the best one with the name of each as "group".
  std::vector<Json> records(const std::vector<GroupScore>& scores) const;

 private:
  std::map<std::string, ForecastTrace> traces_;
};

/// {"kind": "score", "score": ...}
Json score_record(const Model& model, const Score& score, const std::string& data);
/// Returns a text written by a language model: {"kind": "sample", "text"}.
Json sample_record(const Model& model, const Execution& execution);

/// Adds records to a file of metrics. Throws Error(io_failure) naming it.
void append_records(const std::string& path, const std::vector<Json>& records);

}  // namespace penstock::cli::reporting
