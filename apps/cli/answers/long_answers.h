#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "penstock/data/rows.h"
#include "report/date_texts.h"
#include "terminal/terminal.h"

/// Forecasts as a long table: a row for each forecast row and column, with the date that it is for.
namespace penstock::cli {

/// The dates of a file's rows and of the rows behind them that are forecast. A model without dates counts rows instead,
/// from 1 for the first row of each series.
class RowTimes {
 public:
  /// Reads the times of `groups`, which read_groups() made of `rows`. Throws Error(bad_input) for a file without the
  /// model's column of dates, and for a series whose first or last row has no date.
  RowTimes(const Rows& rows, const std::vector<GroupedRows>& groups, const DataDescription& data);

  /// The name of the column: that of the dates, or "row".
  const std::string& name() const { return name_; }
  /// Returns the time of a row of a series, both counted from 0; up to `horizon` rows behind its last row.
  std::string text(std::size_t series, Index row) const;

 private:
  std::string name_ = "row";
  std::vector<std::vector<double>> dates_;  // [series][rows + horizon], in seconds since the start of 1970
  std::optional<reporting::DateWriter> writer_;
};

struct LongOptions {
  std::vector<std::string> keep;  ///< Names of the columns that stand in front.
  std::vector<double> quantiles;
  bool origins = false;  ///< Name the row that each forecast was made from, where there are forecasts from several.
  bool json = false;     ///< JSON lines instead of CSV.
};

/// Writes `keep`..., "origin", the date, the group, "column", "forecast", "q0.1"...: names of the date and the group
/// are those of the data.
class LongAnswers {
 public:
  LongAnswers(Output& output, const DataDescription& data, LongOptions options, RowTimes times);

  void header();
  /// The forecasts [horizon, targets] from a row of a series, both counted from 0; `kept` is of that row.
  void answer(std::size_t series, Index row, const GroupedRows& of, const ErrorDistribution& distribution,
              std::span<const float> forecasts);

 private:
  std::vector<std::string> keys(std::size_t series, Index row, Index step, const GroupedRows& of) const;

  Output& output_;
  const DataDescription& data_;
  LongOptions options_;
  RowTimes times_;
  std::vector<std::string> key_names_;
};

}  // namespace penstock::cli
