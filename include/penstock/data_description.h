#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "penstock/types.h"

/// Data descriptions: the columns, scaling, dates and labels in a model file. With them, new data are read as in
/// training.
namespace penstock {

/// Purpose of a model. It decides the loss, the shape of the targets and the answers on a stream.
enum class Task {
  language,  ///< Predicts the next byte of a text: tokens in, 256 logits out at every step.
  forecast,  ///< Predicts the next `horizon` values of chosen columns of a time series, at every step.
  classify,  ///< Predicts one label per sequence, or per step in some built-in tasks: logits over `classes`.
};
std::string_view to_string(Task task);

/// Form of the dates in a column.
enum class DateForm {
  month_first,   ///< 2020-03-04, 4 Mar 2020, 2020Q1 and the like; 03/04/2020 is in March.
  day_first,     ///< As month_first, but 03/04/2020 is in April.
  excel,         ///< Excel's day numbers.
  year,          ///< Year numbers: 2020.
  digits,        ///< Eight digits: 20200304.
  seconds,       ///< Seconds since the start of 1970.
  milliseconds,  ///< Milliseconds since the start of 1970.
};

/// The quantity that an input derives from its column.
enum class Feature {
  value,        ///< The number in the column.
  missing,      ///< 1 if the value is missing, otherwise 0.
  category,     ///< 1 if the text is Column::category, otherwise 0.
  day_sine,     ///< Sine of the time of day as an angle, from midnight to midnight.
  day_cosine,   ///< Cosine of that angle.
  week_sine,    ///< Sine of the time of the week as an angle, from Monday to Monday.
  week_cosine,  ///< Cosine of that angle.
  year_sine,    ///< Sine of the time of the year as an angle, from 1 January to 1 January.
  year_cosine,  ///< Cosine of that angle.
  elapsed,      ///< log2(1 + u) - 1, with u the time since the previous row in units of the usual time; 0 for u = 1.
};

/// Returns the name of a feature as written above: "day_sine".
std::string_view to_string(Feature feature);
/// Returns the feature of that name. Throws Error(invalid_argument) that lists the names.
Feature parse_feature(std::string_view text);
/// Returns the name of a date form: "month-first", "excel", ...
std::string_view to_string(DateForm form);
/// Returns the date form of that name. Throws Error(invalid_argument) that lists the names.
DateForm parse_date_form(std::string_view text);

/// One input or target: a column of the table, what is read from it, and its scaling.
///
/// The normalised value is (v - mean) / scale, with v the feature of the raw value, or its logarithm if `logarithm`.
struct Column {
  std::string name;
  double mean = 0.0;
  double scale = 1.0;
  bool logarithm = false;  ///< Scales the logarithm of the values, which must all be positive.
  Feature feature = Feature::value;
  DateForm dates = DateForm::month_first;  ///< Form of the dates, for features of dates.
  std::string category = {};               ///< The text that Feature::category compares with.
  Index ahead = 0;  ///< Reads the value of the row that many rows later, which is known in advance. 0: this row.

  /// Returns the normalised value of a raw value; NaN if its logarithm does not exist. The raw value of a date is its
  /// seconds since the start of 1970.
  double normal(double value) const;
  /// Returns the raw value of a normalised value. For Feature::value only.
  double raw(double normalised) const;
  /// Largest magnitude of a normalised value that models accept. Larger numbers, such as 3.4e38, are markers for
  /// missing values, and a sum with them would lose all other digits.
  static constexpr double furthest = 1e12;
  /// Returns whether the normalised value of a raw value is a number of at most `furthest` in magnitude.
  bool can_read(double value) const;
  /// Returns whether the feature is derived from dates.
  bool reads_dates() const { return feature > Feature::category; }
  /// Returns whether `other` has the same column, feature and category, whatever its `ahead`.
  bool reads_same(const Column& other) const {
    return name == other.name && feature == other.feature && category == other.category;
  }
  /// Returns the name, with the feature and `ahead` unless it is the value of the row: "date (year_sine)",
  /// "price (+3)", "weekday = Monday".
  std::string title() const;
};

/// Format of a table. Fields that are not set are detected from its first rows; Dataset::reading() reports what was
/// found.
struct TableFormat {
  char delimiter = 0;                         ///< Separator of fields; 0: detect.
  char decimal = 0;                           ///< Decimal mark, '.' or ','; 0: detect.
  std::optional<bool> header = std::nullopt;  ///< True if the first row holds column names; empty: detect.
};

/// Treatment of missing values: empty fields, NA, NaN, null, ?.
enum class Missing {
  refuse,       ///< Error that names the place.
  carry,        ///< The last value of the column; before that, the first value.
  interpolate,  ///< Linear interpolation between the neighbouring values; as carry at the ends of the data.
  mask,         ///< As carry, plus an input Feature::missing; forecasts of missing values are not scored.
};

std::string_view to_string(Missing missing);
/// Returns the treatment of that name. Throws Error(invalid_argument) for anything except "refuse", "carry",
/// "interpolate" and "mask".
Missing parse_missing(std::string_view text);

/// Treatment of rows of a series whose date cannot be read: 2023-02-30, a line "Total", an empty field.
enum class Undated {
  refuse,  ///< Error that names the place.
  drop,    ///< Leaves these rows out.
};

std::string_view to_string(Undated undated);
/// Returns the treatment of that name. Throws Error(invalid_argument) for anything except "refuse" and "drop".
Undated parse_undated(std::string_view text);

/// Treatment of series whose rows are not evenly spaced in time.
enum class Irregular {
  automatic,  ///< fill if few rows of a regular calendar are missing; elapsed if the dates follow no calendar.
  ignore,     ///< Ignores the distances in time.
  elapsed,    ///< Adds the time since the previous row as an input, Feature::elapsed.
  fill,       ///< Inserts the rows that a regular calendar has and the table lacks, without values. Missing says how
              ///< these are filled; with Missing::refuse they are treated as with Missing::mask.
  refuse,     ///< Error that names the place.
};

std::string_view to_string(Irregular irregular);
/// Returns the treatment of that name. Throws Error(invalid_argument) that lists the names.
Irregular parse_irregular(std::string_view text);

/// Dates of the rows of a series: their column, their usual distance, and the treatment of irregular ones.
struct RowDates {
  Irregular irregular = Irregular::ignore;  ///< Never automatic.
  std::string column = {};  ///< Column of the dates. With Irregular::ignore it is optional and only labels rows.
  DateForm form = DateForm::month_first;
  double step = 0.0;          ///< Usual time between two rows, in seconds.
  bool working_days = false;  ///< There are no rows on Saturdays and Sundays.

  /// Returns the seconds from one date to another; both are seconds since the start of 1970. Dates without a time zone
  /// skip or repeat an hour in nights in which clocks are changed; there, an hour more or less than `step` counts as
  /// `step`.
  double seconds_between(double before, double after) const;
  /// Returns the number of rows of a regular calendar that are missing between two dates.
  double missing_between(double before, double after) const;
  /// Returns the dates of the missing rows between two dates.
  std::vector<double> between(double before, double after) const;
  /// Returns whether `after` is a regular date for the row that follows the row at `before`.
  bool is_regular(double before, double after) const;
};

/// Distribution of forecast errors, from which prediction intervals follow: a scale for each horizon step, and one
/// shape for all. fit_spread() estimates it from held-out forecasts. Empty: unknown.
struct Spread {
  std::vector<double> levels;     ///< Levels of `quantiles`, ascending, within (0, 1).
  std::vector<double> quantiles;  ///< [levels, targets], ascending along levels: error quantiles in units of `scales`.
  std::vector<double> scales;     ///< [horizon, targets]
  /// [targets]: 1 if errors are log(value / forecast), because they grow with the value; 0 if they are value -
  /// forecast, normalised.
  std::vector<std::uint8_t> relative;
  /// Width of the errors at the end of a training series, for forecasts by models that had not seen them. A
  /// SpreadTracker continues from there.
  struct Ending {
    std::string group;          ///< Name of the series; empty without groups.
    std::vector<float> values;  ///< [rows, targets], normalised: the last values, by which the end is recognised.
    std::vector<float> widths;  ///< [targets, 2]: square and correction of RecentWidth.
  };
  std::vector<Ending> endings;

  /// Returns whether the spread is unknown.
  bool empty() const { return levels.empty(); }
  /// Throws Error(invalid_argument) if the spread is unknown or does not cover these levels.
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

/// Mean and scale of a column in one of many series.
struct Scaling {
  double mean = 0.0, scale = 1.0;
};

/// One of the series in a table of many, with its own scaling. Its normalised values are ((v - scaling.mean) /
/// scaling.scale - column.mean) / column.scale, with v as for Column.
struct Group {
  std::string name;
  std::vector<Scaling> inputs;   ///< One for each input.
  std::vector<Scaling> targets;  ///< One for each target.
};

/// Describes the data of a model: task, columns, scaling, dates, groups and labels.
struct DataDescription {
  Task task = Task::language;
  Index vocabulary = 0;               ///< > 0: inputs are tokens 0..vocabulary-1; 0: inputs are the columns `inputs`.
  std::vector<Column> inputs;         ///< Input features, in the order in which the model reads them.
  std::vector<Column> targets;        ///< forecast: the predicted columns.
  Index horizon = 1;                  ///< forecast: steps ahead; the output is [horizon, targets].
  Index season = 0;                   ///< forecast: rows of a seasonal period; 1: no season, 0: unknown.
  Spread spread;                      ///< forecast: distribution of the errors of a trained model.
  std::string group_column = {};      ///< forecast: column with the name of each row's series; empty: one series.
  std::vector<Group> groups = {};     ///< forecast: the series of training, each with its scaling.
  bool groups_are_files = false;      ///< Series are named by their files; `group_column` is then a heading for them.
  std::vector<std::string> classes;   ///< classify: names of the labels.
  char delimiter = ',';               ///< Separator of the CSV rows.
  char decimal = '.';                 ///< Decimal mark of their numbers.
  bool header = true;                 ///< True if tables have a header; if not, columns are "column1", "column2", ...
  Missing missing = Missing::refuse;  ///< How training treated missing values.
  RowDates row_dates = {};            ///< forecast: dates of the rows, if they matter.
  Undated undated = Undated::refuse;  ///< forecast: how training treated rows whose date cannot be read.
  Index sample_rate = 0;         ///< Samples per second of sound with one input and one output channel; 0: no sound.
  std::string text_column = {};  ///< classify: column of texts, each row a sequence of bytes; empty: rows are steps.
  Index longest_text = 0;        ///< Bytes that are read of each text; the rest is cut off.

  /// Returns O, the outputs of the model at each step.
  Index output_size() const;
  /// Returns I, the inputs of the model at each step; 1 for tokens.
  Index input_size() const;
  /// Returns the description of one series by itself: with its scaling in the columns, and without groups.
  DataDescription of_group(const Group& group) const;
  /// Returns the index of the input that reads the value of this column in the same row; empty if there is none.
  std::optional<std::size_t> input_of(std::string_view column) const;
  /// Returns the index of the input that reads in its own row what `later` reads in later rows. Throws
  /// Error(invalid_argument) if there is none.
  std::size_t now_of(const Column& later) const;
  /// Returns whether the model labels sequences of numbers; built-in tasks label tokens.
  bool labels_sequences() const;
  /// Returns whether the model labels texts, one in each row of a table.
  bool labels_texts() const { return !text_column.empty(); }
  /// Returns whether a target is also an input, so forecasts can start from its last value.
  bool forecasts_an_input() const;
  /// Returns whether some inputs are values of later rows.
  bool reads_ahead() const;
  /// Returns the number of later rows that a forecast needs but does not have if `behind` rows follow its row; 0 if
  /// nothing is missing.
  Index lacking_ahead(Index behind) const { return reads_ahead() && behind < horizon ? horizon - behind : 0; }
  /// Returns the names of the columns that are read in later rows, each once.
  std::vector<std::string> known_columns() const;
  /// Returns whether this column is read in later rows.
  bool is_known_ahead(std::string_view column) const;
};

/// Computes DataDescription::of_group() for many groups. The time for each does not depend on the number of groups.
class GroupDescriptions {
 public:
  explicit GroupDescriptions(const DataDescription& data);
  /// Returns the description of one series by itself.
  DataDescription of(const Group& group) const;

 private:
  DataDescription of_any_;  // without the parts that belong to groups
  std::unordered_map<std::string, std::vector<Spread::Ending>> endings_;
};

/// Fills the inputs that read later rows (Column::ahead) in `features` [rows, I], the rows of one series. Beyond the
/// last row they repeat the last row.
void fill_ahead(const DataDescription& data, std::span<float> features);

}  // namespace penstock
