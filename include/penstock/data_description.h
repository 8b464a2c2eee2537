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

/// What travels with a model so that raw data mean the same later as in training.
namespace penstock {

/// What a model is for; decides the loss, the shape of the targets and what a stream answers.
enum class Task {
  language,  ///< Next byte of a text: embedding in, 256 logits out at every step.
  forecast,  ///< The next `horizon` values of chosen columns of a time series, at every step.
  classify,  ///< One label per sequence, or per step where the task says so: logits over `classes`.
};
std::string_view to_string(Task task);

/// How a column writes dates: in a form of words and digits, or as a number.
enum class DateForm {
  month_first,   ///< 2020-03-04, 4 Mar 2020, 2020Q1 and the like; 03/04/2020 is in March.
  day_first,     ///< The same, but 03/04/2020 is in April.
  excel,         ///< Days, as Excel counts them.
  year,          ///< 2020
  digits,        ///< 20200304
  seconds,       ///< Since the start of 1970.
  milliseconds,  ///< Since the start of 1970.
};

/// What an input is, of the field of its column.
enum class Feature {
  value,        ///< The number in it.
  missing,      ///< 1 where there is none, otherwise 0.
  category,     ///< 1 where its text is Column::category, otherwise 0.
  day_sine,     ///< Where its date stands between midnight and midnight,
  day_cosine,   ///< as the sine and cosine of an angle;
  week_sine,    ///< from Monday to Monday;
  week_cosine,  ///<
  year_sine,    ///< from the first of January to the next.
  year_cosine,
  elapsed,  ///< Time since the row before, in units of the usual one u: log2(1 + u) - 1, so that the usual one is 0.
};

std::string_view to_string(Feature feature);
/// Throws Error(invalid_argument) that lists the names there are.
Feature parse_feature(std::string_view text);
std::string_view to_string(DateForm form);
DateForm parse_date_form(std::string_view text);

/// One column: normalised value = (raw - mean) / scale, or of the logarithm of raw values.
struct Column {
  std::string name;
  double mean = 0.0;
  double scale = 1.0;
  bool logarithm = false;  ///< Mean and scale are those of logarithms; all values must be positive.
  Feature feature = Feature::value;
  DateForm dates = DateForm::month_first;  ///< Of a feature of dates.
  std::string category = {};               ///< Of Feature::category.
  Index ahead = 0;                         ///< > 0: the value of so many rows later, which is known in advance.

  /// Of a raw value; not a number where a logarithm has none. Dates are raw as seconds since the start of 1970.
  double normal(double value) const;
  double raw(double normalised) const;  ///< Of values: back again.
  /// Models compute with normal values up to this: what is further off is no measurement but a sign for one that is
  /// missing, such as 3.4e38, and would leave no digit of all that it is summed with.
  static constexpr double furthest = 1e12;
  /// Whether a model can compute with a raw value; false if it is not a number.
  bool can_read(double value) const;
  /// Whether this is a feature of dates.
  bool reads_dates() const { return feature > Feature::category; }
  /// Whether this is the same of a column as `other` is, in whichever row.
  bool reads_same(const Column& other) const {
    return name == other.name && feature == other.feature && category == other.category;
  }
  /// The name, and what of it is read if that is not the value of the row: "date (year_sine)", "price (+3)",
  /// "weekday = Monday".
  std::string title() const;
};

/// How a table is written. What is not given is found from its first rows, and Dataset::reading() says what was found.
struct TableFormat {
  char delimiter = 0;                         ///< Between the fields of a row; 0: found.
  char decimal = 0;                           ///< '.' or ',': starts the fraction of a number; 0: found.
  std::optional<bool> header = std::nullopt;  ///< Whether the first row holds the names of the columns.
};

/// What becomes of values that a table lacks: empty fields, NA, NaN, null, ?.
enum class Missing {
  refuse,       ///< An error that says where.
  carry,        ///< The last value of the column; the first one before that.
  interpolate,  ///< On a straight line between the values before and after; as carry where there is only one of them.
  mask,         ///< Read as carry does, and as Feature::missing; never asked for: forecasts of them are not scored.
};

std::string_view to_string(Missing missing);
/// Throws Error(invalid_argument) for anything but "refuse", "carry", "interpolate" and "mask".
Missing parse_missing(std::string_view text);

/// What becomes of rows of a series whose date cannot be read: 2023-02-30, a line "Total", an empty field.
enum class Undated {
  refuse,  ///< An error that says where.
  drop,    ///< They are left out, as if the table did not hold them.
};

std::string_view to_string(Undated undated);
/// Throws Error(invalid_argument) for anything but "refuse" and "drop".
Undated parse_undated(std::string_view text);

/// What becomes of a series whose rows do not all follow each other at the same distance in time.
enum class Irregular {
  automatic,  ///< fill where few rows of a regular calendar are missing, elapsed where dates follow none.
  ignore,     ///< Rows follow each other, whenever they were.
  elapsed,    ///< The time since the row before is an input: Feature::elapsed.
  fill,       ///< Rows that a regular calendar has, and the table has not, are put in without values: they are dealt
              ///< with as missing values are, and as Missing::mask where those are refused.
  refuse,     ///< An error that says where.
};

std::string_view to_string(Irregular irregular);
/// Throws Error(invalid_argument) that lists the names there are.
Irregular parse_irregular(std::string_view text);

/// When rows of a series are, and what becomes of those that are not when they should be.
struct RowDates {
  Irregular irregular = Irregular::ignore;  ///< Never automatic.
  std::string column = {};  ///< That holds the dates; for Irregular::ignore only to say when rows were, if it is there.
  DateForm form = DateForm::month_first;
  double step = 0.0;          ///< The usual time between two rows, in seconds.
  bool working_days = false;  ///< There are no rows on Saturdays and Sundays.

  /// The seconds between two dates, in seconds since the start of 1970. On a night in which clocks are changed, an hour
  /// more or less than the usual time is that time: of dates without a time zone the hour is not there, or there twice.
  double seconds_between(double before, double after) const;
  /// How many rows of a regular calendar are missing between two dates.
  double missing_between(double before, double after) const;
  /// Their dates.
  std::vector<double> between(double before, double after) const;
  /// Whether the row behind that of `before` should be at `after`.
  bool is_regular(double before, double after) const;
};

/// How far forecasts are off, from which the quantiles of what comes follow: a scale for every distance, and one shape.
/// Found by fit_spread() in what followed forecasts; empty: not known.
struct Spread {
  std::vector<double> levels;     ///< Ascending, within (0, 1)
  std::vector<double> quantiles;  ///< [levels, targets], ascending along levels: of errors in units of `scales`
  std::vector<double> scales;     ///< [horizon, targets]
  /// [targets]: 1 where errors are logarithms of value / forecast, because they grow with the value; 0 where they are
  /// value - forecast, normalised.
  std::vector<std::uint8_t> relative;
  /// How wide errors were at the end of a series that training saw, by forecasts that had not seen them: a
  /// SpreadTracker goes on from there.
  struct Ending {
    std::string group;          ///< Of the series; empty without groups.
    std::vector<float> values;  ///< [rows, targets]: the last values, by which the end is known; normalised
    std::vector<float> widths;  ///< [targets, 2]: as RecentWidth keeps them
  };
  std::vector<Ending> endings;

  bool empty() const { return levels.empty(); }
  /// Throws Error(invalid_argument) unless the spread is known and covers these levels of quantiles.
  void check(std::span<const double> quantile_levels) const;
  /// The quantile of a level of what output `output` of [horizon, targets] forecasts, raw; `column` is its target. The
  /// level must not lie beyond the first or the last one. Where errors are relative, a forecast that is not positive
  /// has no spread.
  double quantile(double level, Index output, const Column& column, double normalised) const;
  /// The error that belongs to it.
  double error(double level, Index output) const;
  /// Such an error of a target: between a value, raw, and what was forecast of it, normalised; not a number where it is
  /// relative and there is no ratio.
  double error_between(double value, double forecast, std::size_t target, const Column& column) const;
};

/// Mean and scale of a column in one series of many.
struct Scaling {
  double mean = 0.0, scale = 1.0;
};

/// One of the series that a table holds, and how its values are scaled: (value - mean) / scale takes the place of the
/// value in Column::normal.
struct Group {
  std::string name;
  std::vector<Scaling> inputs;   ///< Of each input.
  std::vector<Scaling> targets;  ///< Of each target.
};

/// Everything that has to travel with a model so that raw data mean the same later as in training.
struct DataDescription {
  Task task = Task::language;
  Index vocabulary = 0;              ///< > 0: inputs are tokens 0..vocabulary-1; 0: inputs are `inputs` columns.
  std::vector<Column> inputs;        ///< Input features, in the order the model reads them.
  std::vector<Column> targets;       ///< forecast: the predicted columns.
  Index horizon = 1;                 ///< forecast: steps ahead, output [horizon, targets].
  Index season = 0;                  ///< forecast: rows after which the series repeats itself; 1: none, 0: not known.
  Spread spread;                     ///< forecast: of a trained model.
  std::string group_column = {};     ///< forecast: names the series that a row is of; empty: all rows are of one.
  std::vector<Group> groups = {};    ///< forecast: the series of training, each with a scaling of its own.
  bool groups_are_files = false;     ///< No column names them, but their files do: `group_column` is what to call that.
  std::vector<std::string> classes;  ///< classify: names of the labels.
  char delimiter = ',';              ///< Of the CSV rows this model reads.
  char decimal = '.';                ///< Starts the fraction of their numbers.
  bool header = true;  ///< Whether a header comes first; without one, columns are "column1", "column2", ...
  Missing missing = Missing::refuse;  ///< What training made of missing values.
  RowDates row_dates = {};            ///< forecast: when rows are, as far as that matters.
  Undated undated = Undated::refuse;  ///< forecast: what training made of rows whose date cannot be read.
  Index sample_rate = 0;              ///< > 0: sound, of one channel in and one out at the same moment.
  std::string text_column = {};       ///< classify: holds texts, a sequence of bytes a row; empty: rows are steps.
  Index longest_text = 0;             ///< Of such a column: bytes of a text that are read, those behind are not.

  /// Width of the model's output at each step.
  Index output_size() const;
  /// Width of the model's input at each step; 1 for tokens.
  Index input_size() const;
  /// What describes the data of one series by itself: its scaling is part of the columns, and there are no groups.
  DataDescription of_group(const Group& group) const;
  /// The input that is the value of this column in the same row; nothing if the model does not read it.
  std::optional<std::size_t> input_of(std::string_view column) const;
  /// The input that reads in its own row what `later` reads of later ones. Throws Error(invalid_argument) if none does.
  std::size_t now_of(const Column& later) const;
  /// Whether it labels sequences of numbers, as a person's files hold them; built-in tasks label tokens.
  bool labels_sequences() const;
  /// Whether it labels texts, one in each row of a table.
  bool labels_texts() const { return !text_column.empty(); }
  /// Whether a target is an input, too, so that forecasts can start from its last value.
  bool forecasts_an_input() const;
  /// Whether inputs are values of later rows.
  bool reads_ahead() const;
  /// How many of the rows that forecasts from a row need for what is known in advance are not there where `behind` rows
  /// follow it; 0 if nothing is.
  Index lacking_ahead(Index behind) const { return reads_ahead() && behind < horizon ? horizon - behind : 0; }
  /// The columns of which the model reads later rows, each once: a category is an input for each of its texts.
  std::vector<std::string> known_columns() const;
  /// Whether the model reads later rows of this column.
  bool is_known_ahead(std::string_view column) const;
};

/// The descriptions of many groups of the same data, each as DataDescription::of_group() gives it, in a time that does
/// not depend on how many groups there are.
class GroupDescriptions {
 public:
  explicit GroupDescriptions(const DataDescription& data);
  DataDescription of(const Group& group) const;

 private:
  DataDescription of_any_;  // without what is of groups
  std::unordered_map<std::string, std::vector<Spread::Ending>> endings_;
};

/// Puts the values of later rows into the inputs of `features` [rows, I], rows of one series, that stand for them. What
/// would stand behind the last row is that of the last row.
void fill_ahead(const DataDescription& data, std::span<float> features);

}  // namespace penstock
