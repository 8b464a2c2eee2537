#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "penstock/data/dataset.h"

namespace penstock {

/// After how long dates come round again.
enum class Cycle { day, week, year };

/// Which cycles of its rows' dates a series model reads, each as a sine and a cosine.
struct CalendarOptions {
  bool read = false;
  std::string column = {};  ///< That holds the dates; empty: the first column that does, if any.
  /// Empty: those longer than two rows that the training part holds twice and follows.
  std::vector<Cycle> cycles = {};
};

/// Whether a series is learnt as it is or by its logarithm.
enum class Transform { automatic, none, logarithm };

struct SeriesOptions {
  std::vector<std::string> inputs = {};   ///< Column names; empty: every numeric column.
  std::vector<std::string> targets = {};  ///< Empty: the same as inputs.
  Index horizon = 1;
  double validation_fraction = 0.2;  ///< The last rows are held out; normalisation sees the first part only.
  TableFormat format = {};
  Missing missing = Missing::refuse;
  /// For a model with ModelSpec::from_last: the scale of a target that is an input too is the root mean square of its
  /// change over the horizon, so that a mean squared error of 1 is that of forecasting the last value.
  bool from_last = false;
  /// Fit a linear forecast of the targets that are inputs too, beside which a model learns the rest; needs from_last.
  bool autoregression = false;
  Transform transform = Transform::none;  ///< automatic: what forecasts best in the training part, with autoregression.
  Index season = 0;                       ///< Rows after which the targets repeat themselves; 1: never, 0: find out.
  CalendarOptions calendar = {};
  Irregular irregular = Irregular::ignore;  ///< By the dates in calendar.column, whether or not the calendar is read.
  Undated undated = Undated::refuse;        ///< By the same dates, if they are read.
  /// Column that names the series of each row, such as the shop of a sale; empty: there is one. Every series is split
  /// by time and scaled by itself; one model learns them all.
  std::string group = {};
  bool group_by_file = false;  ///< The same, of files that hold a series each, which are named as they are.
  /// Columns whose values are known as far ahead as the forecasts reach, such as prices and holidays: inputs of a
  /// forecast are their values in the rows that are forecast. They are read whether or not `inputs` names them, and are
  /// no targets unless `targets` names others. Rows at the end of a series that lack all targets say what is known.
  std::vector<std::string> known = {};
  /// Columns of which each text is an input, 1 where a row has it: names; or "none"; or "auto", as empty: columns of
  /// text with few different ones.
  std::vector<std::string> categories = {};
  int threads = 0;  ///< That look for the season and the linear forecast; 0: as many as the machine offers.
};
/// What is said of how a series is forecast and of its dates; what is not is left to suggest_series().
struct SeriesChoices {
  std::optional<bool> from_last = std::nullopt;
  std::optional<bool> autoregression = std::nullopt;
  std::optional<Transform> transform = std::nullopt;
  /// Some of "day", "week" and "year"; or "none"; or "auto", as empty: what CalendarOptions finds.
  std::vector<std::string> calendar = {};
  std::string date_column = {};
  std::optional<Irregular> irregular = std::nullopt;
};
/// Options as the program and the Python package have them where nothing else is said: forecasts that start from the
/// last value, beside a linear one, by logarithms where these forecast better, with what dates show; and rows as their
/// dates suggest, unless the calendar is not read. Throws Error(invalid_argument) for a calendar that there is not.
SeriesOptions suggest_series(const SeriesChoices& said = {});

/// A table, one step a row. Unless they are asked for, columns that count or name rows are left out, such as an index.
/// Several files hold the same columns; none goes on where the one before it ended, and the
/// last rows of each are held out. Errors name file, line and column.
std::unique_ptr<Dataset> open_series(const Sources& sources, const SeriesOptions& options = {});
std::unique_ptr<Dataset> open_series(const std::string& path, const SeriesOptions& options = {});
/// The same of tables in memory. `origin`, if it is there, decides as it does in penstock/train/fine_tune.h.
std::unique_ptr<Dataset> open_series_tables(const std::vector<Table>& tables, const SeriesOptions& options = {},
                                            const DataDescription* origin = nullptr);

}  // namespace penstock
