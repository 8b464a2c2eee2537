#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "penstock/types.h"

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

/// One batch for training or validation. Only the members that the task needs are filled.
struct Example {
  Index rows = 0;                    ///< B
  Index steps = 0;                   ///< T
  std::vector<std::int32_t> tokens;  ///< [B, T] token inputs
  std::vector<float> features;       ///< [B, T, I] numeric inputs, normalised
  std::vector<std::int32_t> labels;  ///< [B, T] class targets, -1: this step is not scored
  std::vector<float> targets;        ///< [B, T, O] numeric targets, normalised
  std::vector<float> weights;        ///< [B, T, O] for `targets`: 0 not scored, 1 scored
  std::vector<Index> lengths;        ///< [B], or empty when all rows have T steps
  std::vector<std::uint8_t> reset;   ///< [B, T], or empty
  /// True when step 0 continues the previous Example of this dataset (truncated back-propagation carries the state).
  bool continues = false;
};

/// A linear forecast of a series from its last rows, as a dataset has fitted it (ModelSpec::lags): what is added to the
/// last value x_t is bias + sum_k weights_k x_{t-k}, all normalised as targets. With effects of what is known in
/// advance it is that of x_t less the effects in its row, and those in the row that is forecast are added.
struct Autoregression {
  Index lags = 0;
  std::vector<float> weights;  ///< [lags, horizon, targets], the current row first
  std::vector<float> bias;     ///< [horizon, targets]
  /// [I, targets]: what a normalised input of a row adds to a target of the same row; 0 but for those that are known in
  /// advance. Empty: no effects.
  std::vector<float> effects = {};
};

/// A source of training and validation batches. Its whole state is a short text, so that a resumed run reads on
/// exactly where it stopped.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual const DataDescription& description() const = 0;
  /// Number of scored training steps in one pass, for progress; 0 when the task is generated without end.
  virtual Index training_steps() const = 0;
  /// Number of steps that are held out; 0 when the task is generated without end.
  virtual Index held_out_steps() const { return 0; }
  /// Fills `example` with B rows of at most T steps of training data and moves on.
  /// Labelled sequences and tasks are never cut: there T is the longest sequence of the batch, whatever `steps` says.
  virtual void next(Index rows, Index steps, Example& example) = 0;
  /// The i-th validation batch, the same every time; false (example untouched) when there are no more.
  virtual bool validation(Index i, Index rows, Index steps, Example& example) const = 0;
  /// The linear forecast that was fitted to the training part; null if none was.
  virtual const Autoregression* autoregression() const { return nullptr; }
  /// Position and random state as JSON text, and back. Throws Error(incompatible) for another dataset's text.
  virtual std::string position() const = 0;
  virtual void restore(const std::string& position) = 0;
  /// How the files were read, as far as that had to be found out, a finding an entry: "separator ';', decimal ','",
  /// "3 columns read, 1 left out: week (dates)".
  virtual std::vector<std::string> reading() const { return {}; }
};

/// Where data come from: files, folders (every file in them, in the order of their names), or "-" for standard input.
/// What gzip has compressed is decompressed.
using Sources = std::vector<std::string>;

/// A table in memory, written as a file of it would be.
struct Table {
  std::string name;  ///< What messages call it.
  std::string text;
  bool named = false;  ///< Commas part its fields, and its first line names the columns, even if it looks like a row.
};

struct TextOptions {
  double validation_fraction = 0.05;  ///< The last part of the file is held out; [0, 0.5].
  bool bytes = false;                 ///< Also files that are no texts, such as programs and pictures.
};
/// Files as one sequence of bytes. Throws Error(bad_input) if it is empty or too short for one step each, or a file is
/// no text.
std::unique_ptr<Dataset> open_text(const Sources& sources, const TextOptions& options = {});
std::unique_ptr<Dataset> open_text(const std::string& path, const TextOptions& options = {});

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
/// The same of tables in memory. `origin`, if it is there, decides as it does in penstock/fine_tune.h.
std::unique_ptr<Dataset> open_series_tables(const std::vector<Table>& tables, const SeriesOptions& options = {},
                                            const DataDescription* origin = nullptr);

struct LabelledOptions {
  /// Rows with the same value, one after the other, are one sequence; a value must not come back in the same file.
  std::string sequence_column = "sequence";
  std::string label_column = "label";        ///< Constant within a sequence.
  std::vector<std::string> inputs = {};      ///< Empty: every other numeric column.
  std::vector<std::string> categories = {};  ///< As SeriesOptions has them.
  double validation_fraction = 0.2;          ///< Of the sequences, chosen by the seed.
  TableFormat format = {};
  Missing missing = Missing::refuse;
  std::uint64_t seed = 0;
};
/// A table in which each run of equal `sequence` values is one labelled sequence, or a .ts file of the UCR and UEA
/// archive. Throws Error(bad_input) where the rows of a sequence are apart.
std::unique_ptr<Dataset> open_labelled(const Sources& sources, const LabelledOptions& options = {});
std::unique_ptr<Dataset> open_labelled(const std::string& path, const LabelledOptions& options = {});
/// The same of tables in memory.
std::unique_ptr<Dataset> open_labelled_tables(const std::vector<Table>& tables, const LabelledOptions& options = {},
                                              const DataDescription* origin = nullptr);

/// What kind of data a file seems to hold, by its name and its first lines.
enum class SourceKind { text, series, labelled, labelled_texts };
SourceKind guess_kind(const Sources& sources, const TableFormat& format = {});
/// Whether its first lines are those of a table although its name says nothing: one of .txt, .dat, .data, .asc and
/// .out, or without an extension. Throws Error(io_failure) where a folder cannot be read.
bool is_unnamed_table(const Sources& sources);

/// The content of a file, or of standard input for "-", as the functions above read it: decompressed, from UTF-16 to
/// UTF-8. Throws Error(io_failure | bad_input).
std::string read_source(const std::string& path);
/// The same of a table: a .ts file as the table of its sequences, and objects in JSON (.jsonl, .ndjson, .json), each a
/// row, as that of their fields.
std::string read_table(const std::string& path);
/// Whether a table in a file of this name is one of those that read_table() turns into another.
bool is_converted_table(const std::string& path);
/// Whether content with this beginning is no text as it is: compressed by gzip, or in UTF-16.
bool is_encoded(std::string_view beginning);
/// What such content, whole, stands for, as read_source has it; `name` is what messages call it. Throws
/// Error(bad_input).
std::string decoded(const std::string& content, const std::string& name);

struct TaskOptions {
  Index length = 40;              ///< Training length T of every sequence.
  Index validation_length = 256;  ///< Validation uses this length, to show what generalises.
  Index modulus = 5;              ///< modular arithmetic: 2..64
  Index copy_tokens = 10;         ///< selective copying: tokens to remember, 1..length/2
  std::uint64_t seed = 0;
};
/// Built-in tasks, generated without end: "parity", "modular", "copying". Throws Error(invalid_argument) otherwise.
std::unique_ptr<Dataset> open_task(const std::string& name, const TaskOptions& options = {});
const std::vector<std::string>& task_names();

/// How rows may differ from those that a model was trained on.
struct RowFormat {
  char delimiter = 0;  ///< 0: the model's, or the usual one that shows the model's columns in the header.
  char decimal = 0;    ///< 0: the model's.
  /// Missing::refuse makes missing values an error; anything else replaces them by the last value of their column (the
  /// mean in training before there is one). Nothing: what training did.
  std::optional<Missing> missing = std::nullopt;
  std::optional<Undated> undated = std::nullopt;  ///< Nothing: what training did.
  bool replace_bad = false;  ///< Fields that are no numbers, and rows of another width, count as missing too.
  /// A change of its value starts a new sequence: the reader restarts. Empty, or not in the header: nothing does.
  std::string sequence_column = {};
  std::string series = {};  ///< Of a model whose series are files: the name of this one; empty: that of the source.
  /// Whether the first line holds names; nothing: as in training. Columns of a model whose files had none stand where
  /// those of training did.
  std::optional<bool> header = std::nullopt;
  Index first_line = 1;  ///< The number of the first line, for messages, where others stood in front.
};

/// Turns the lines of a CSV stream into a model's inputs, with the normalisation of its DataDescription.
/// The first line is a header if that of training was; columns may stand in any order then, and others are ignored.
class RowReader {
 public:
  /// `first` is the first line; `source` names the stream in error messages ("-" or a path). Without a header the first
  /// line is a row as well, and has to be read.
  RowReader(const DataDescription& description, const std::string& first, std::string source,
            const RowFormat& format = {});
  ~RowReader();
  RowReader(RowReader&&) noexcept;

  /// Reads one line into features [I]; false and untouched for a blank line, or one that is left out. Inputs that are
  /// values of later rows are not numbers until fill_ahead(). Throws Error(bad_input) with line and
  /// column for anything else that is no row.
  bool read(const std::string& line, std::span<float> features);
  /// Whether the last line was left out because its date cannot be read (Undated::drop).
  bool left_out() const;

  /// With Irregular::fill: features [rows, I] of those that are missing between the last row and the one before it in
  /// its series. A model has to read them first. Valid until the next read.
  std::span<const float> missing_rows() const;

  /// Of each target [targets] that the model reads: its value in the last row as the table has it; not a number where
  /// the row did not have it, whatever the model reads in its place. Valid until the next read.
  std::span<const double> target_values() const;

  /// When the last row was, in seconds since the start of 1970; nothing if the model reads no dates, or the row has
  /// none.
  std::optional<double> date() const;

  /// Whether the last row belongs to another sequence than the row before it. A name that comes back behind others is
  /// an Error(bad_input) of read(), unless RowFormat::replace_bad bears it as another sequence.
  bool starts_sequence() const;
  /// The first such name, as an error would have said it; empty if there was none.
  const std::string& first_returning_sequence() const;

  /// The next row begins anew: it is at no time behind those that were read, and their values do not go in the place of
  /// missing ones. What was found out about how series are scaled stays.
  void restart();

  /// Where a column of the header stands, whether or not the model reads it; nothing if there is no such column.
  std::optional<std::size_t> column(const std::string& name) const;
  /// Whether the last row lacks all targets of a model that reads ahead: it only says what is known in advance, and its
  /// other features are not numbers.
  bool is_to_come() const;

  /// The text of that column in the last line that was read (not blank); valid until the next read.
  std::string_view text(std::size_t column) const;

  /// That text as a number, written as those of the stream are; nothing if it is none, or missing.
  std::optional<double> number(std::size_t column) const;

  /// Of a model of groups: the series of the last row that was read, and its scaling. One that training did not see is
  /// scaled by its first values until settle_group(). Valid until the next read.
  const Group& group() const;
  /// Whether training saw that series, or it was settled.
  bool knows_group() const;
  /// Scales such a series by the first `count` of its rows: `features` [rows, I], as read() gave them, become what they
  /// are by that scaling, and so do rows that are still to come. Returns the scaling.
  const Group& settle_group(const std::string& name, std::span<float> features, Index count);
  /// Such a series, as it was settled before.
  void add_group(const Group& group);

  /// What is kept of the last row of a series.
  struct LastRow {
    std::vector<float> values;   ///< [I], normalised: what takes the place of missing ones.
    std::optional<double> date;  ///< In seconds since the start of 1970, if the model asks how far rows are apart.
  };
  /// Of each series whose scaling is known, by name (empty without groups): for a reader that goes on where this one
  /// stops.
  std::map<std::string, LastRow> last_rows() const;
  /// Throws Error(invalid_argument) for another number of values. Series that the reader does not know are left out.
  void set_last_rows(const std::map<std::string, LastRow>& rows);

  /// How many values were replaced so far, and what the first of them looked like, as an error would have said it.
  Index replaced() const;
  const std::string& first_replaced() const;

  /// How many lines were left out so far, and what is wrong with the date of the first.
  Index undated() const;
  const std::string& first_undated() const;

  /// How many fields so far held a text that is none of the categories that training showed, and the first of them.
  /// They are read as none.
  Index unknown_categories() const;
  const std::string& first_unknown_category() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;

  /// Throws where it was moved from.
  Impl& held() const;
};

}  // namespace penstock
