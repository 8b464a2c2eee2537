#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/data/dataset.h"

/// Datasets of time series: opening tables, with normalisation, calendar and season.
namespace penstock {

/// A period of the calendar.
enum class Cycle { day, week, year };

/// Says which calendar cycles of the dates are inputs, each as a sine and a cosine.
struct CalendarOptions {
  bool read = false;        ///< True if dates are inputs at all.
  std::string column = {};  ///< Column of the dates; empty: the first column of dates, if any.
  /// Cycles to read. Empty: all that are longer than two rows, fit into the training part twice, and explain the values
  /// there.
  std::vector<Cycle> cycles = {};
};

/// Transform of a series before scaling: none, logarithms, or the better one by the data.
enum class Transform { automatic, none, logarithm };

/// Says how to read a table as a time series.
struct SeriesOptions {
  std::vector<std::string> inputs = {};   ///< Names of the input columns; empty: every numeric column.
  std::vector<std::string> targets = {};  ///< Names of the columns to forecast; empty: those of the inputs.
  Index horizon = 1;                      ///< Rows to forecast: 1 to 65536.
  double validation_fraction = 0.2;  ///< Fraction of the rows, at the end, that is held out. Scaling does not see it.
  TableFormat format = {};
  Missing missing = Missing::refuse;
  /// Scales each target that is also an input by the root mean square of its change over the horizon; a mean squared
  /// error of 1 is then that of the baseline "last value". For models with ModelSpec::from_last.
  bool from_last = false;
  /// Chooses a linear forecast of the targets that are also inputs, which linear_forecast() fits; the layers learn its
  /// residuals. Requires `from_last`.
  bool autoregression = false;
  Transform transform = Transform::none;  ///< automatic: the better one in the training part; needs `autoregression`.
  Index season = 0;                       ///< Rows of a seasonal period of the targets; 1: no season; 0: detect.
  CalendarOptions calendar = {};
  Irregular irregular = Irregular::ignore;  ///< Uses the dates in calendar.column, even if calendar.read is false.
  Undated undated = Undated::refuse;        ///< Uses the same dates, if they are read.
  /// Column with the name of each row's series, such as the shop of a sale; empty: one series. Every series is split by
  /// time and scaled on its own; one model learns them all.
  std::string group = {};
  bool group_by_file = false;  ///< Each file holds one series, named as the file. Excludes `group`.
  /// Columns whose future values are known when a forecast is made, such as prices and holidays. Their values in the
  /// forecast rows are inputs. They need not be in `inputs`, and are not forecast themselves. Rows at the end of a
  /// series without any target value only provide known values.
  std::vector<std::string> known = {};
  /// Columns of categories: each different text becomes an input, 1 in the rows that have it. Column names; or "none";
  /// or "auto", as if empty: columns of text with few different values.
  std::vector<std::string> categories = {};
  /// Lets forecasts of all targets be negative. Otherwise those of a column that is never negative and often near 0,
  /// such as rain, are at least 0 (Column::non_negative).
  bool allow_negative = false;
  int threads = 0;  ///< Threads that search the season and the linear forecast; 0: all of the machine.
};
/// Explicit choices for suggest_series(); empty fields are suggested.
struct SeriesChoices {
  std::optional<bool> from_last = std::nullopt;
  std::optional<bool> autoregression = std::nullopt;
  std::optional<Transform> transform = std::nullopt;
  /// Cycles to read, of "day", "week" and "year"; or "none"; or "auto", as if empty: as CalendarOptions detects.
  std::vector<std::string> calendar = {};
  std::string date_column = {};  ///< As CalendarOptions::column.
  std::optional<Irregular> irregular = std::nullopt;
};
/// Returns the default options of the program and the Python package: from_last, autoregression, Transform::automatic,
/// the calendar, and Irregular::automatic (Irregular::ignore if the calendar is not read). The other options are those
/// of `rest`. Throws Error(invalid_argument) for an unknown word in `calendar`.
SeriesOptions suggest_series(const SeriesChoices& said = {}, SeriesOptions rest = {});

/// Sentence of Dataset::reading() for a table in which nothing shows that it is a series.
inline constexpr std::string_view rows_without_dates =
    "no column says when a row was: each row is read as the step behind the row before";

/// Opens a table as a time series, one step per row.
///
/// Columns that number or identify rows, such as an index, are left out unless they are named. Several files must have
/// the same columns. Each file is a series of its own, and its last rows are held out.
///
/// `origin` is the description of the data of a model that is to be trained further (penstock/train/fine_tune.h). It
/// decides on columns, scaling, horizon, logarithms and calendar; these fields of the options are ignored.
///
/// Throws Error: io_failure if a file cannot be read; bad_input, with file, line and column, for bad content;
/// invalid_argument for impossible options; incompatible for data of another task than `origin`, without its columns,
/// or in another unit.
std::unique_ptr<Dataset> open_series(const TableSources& sources, const SeriesOptions& options = {},
                                     const DataDescription* origin = nullptr);

}  // namespace penstock
