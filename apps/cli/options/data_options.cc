#include "options/data_options.h"

#include <algorithm>
#include <filesystem>
#include <initializer_list>

#include "answers/score_report.h"
#include "penstock/data/labelled_texts.h"
#include "penstock/train/fine_tune.h"
#include "terminal/units.h"

namespace penstock::cli {
namespace {

constexpr std::string_view task_prefix = "task:";

const char* describe(DataKind kind) {
  return word_of({"a text", "a series", "labelled sequences", "labelled texts", "sound", "a built-in task"}, kind);
}

std::string held_out(double fraction, const char* what) {
  if (fraction == 0.0) return "nothing held out";
  return fmt::format("{} {:.3g} % held out", what, 100.0 * fraction);
}

std::string column_list(const std::vector<Column>& columns) {
  constexpr std::size_t shown = 4;
  std::vector<std::string> names;
  for (const Column& column : columns) {
    if (column.ahead > 0 || (column.feature != Feature::value && column.feature != Feature::category)) continue;
    const std::string name = printable(column.name);
    if (names.empty() || names.back() != name) names.push_back(name);  // a column has many categories
  }
  if (names.size() > shown) return fmt::format("{} columns", names.size());
  return fmt::format("{}", fmt::join(names, ", "));
}

OpenedData open_text_file(const DataOptions& options) {
  auto dataset = open_text(options.sources, {.validation_fraction = options.validation_fraction,
                                             .bytes = options.bytes,
                                             .tokens = options.tokens,
                                             .vocabulary = options.vocabulary});
  const Index size = dataset->training_steps() + 1 + dataset->held_out_steps();
  double fraction = options.validation_fraction.value_or(0.05);
  if (dataset->held_out_steps() == most_held_out_by_default) {
    fraction = static_cast<double>(most_held_out_by_default) / static_cast<double>(size);
  }
  const Index vocabulary = dataset->description().vocabulary;
  const std::string amount = dataset->description().vocabulary == 256
                                 ? counted(size, "byte") + " of text"
                                 : fmt::format("{}, ids 0 to {}", counted(size, "token"), vocabulary - 1);
  return {std::move(dataset), fmt::format("{}, {}", amount, held_out(fraction, "the last"))};
}

/// Returns what was found about the rows of a series.
std::string findings(const Dataset& dataset) {
  const DataDescription& data = dataset.description();
  std::string text;
  if (data.series.season > 1) text += fmt::format("; a season of {} rows", data.series.season);
  const auto logarithms = std::ranges::count_if(data.targets, [](const Column& target) { return target.logarithm; });
  if (logarithms > 0) {
    text += logarithms == static_cast<Index>(data.targets.size())
                ? "; log transform"
                : fmt::format("; log transform of {}", counted(logarithms, "column"));
  }
  std::vector<Column> bounded = data.targets;
  std::erase_if(bounded, [](const Column& target) { return !target.non_negative; });
  if (!bounded.empty()) {
    const bool all = bounded.size() == data.targets.size();
    text += fmt::format("; forecasts{} are at least 0 (--allow-negative lifts this)",
                        all ? "" : " of " + column_list(bounded));
  }
  return text;
}

/// Takes what is said about tables of each kind.
template <class TableKind>
void take_table_options(const DataOptions& said, TableKind& options) {
  options.format = said.table.format();
  options.missing = said.table.missing.value_or(said.origin ? said.origin->table.missing : options.missing);
  options.validation_fraction = said.validation_fraction.value_or(options.validation_fraction);
}

OpenedData open_series_file(const DataOptions& options) {
  SeriesOptions series = suggest_series(options.choices, options.series);
  take_table_options(options, series);
  series.inputs = options.columns;
  series.categories = options.categories;
  series.undated = options.table.undated.value_or(options.origin ? options.origin->series.undated : series.undated);
  auto dataset = open_series(options.sources, series, options.origin);
  const DataDescription& data = dataset->description();
  const auto groups = static_cast<Index>(data.series.groups.size());
  const std::string summary = fmt::format(
      "{} in {}{}, {}; predicts {}, {}{} ahead{}", column_list(data.inputs),
      counted(dataset->training_steps() + std::max<Index>(groups, 1), "row"),
      groups > 0 ? fmt::format(" of {} series", with_commas(groups)) : "",
      held_out(series.validation_fraction, groups > 0 ? "of each the next" : "the next"), column_list(data.targets),
      data.series.horizon == 1 ? "" : "1 to ", counted(data.series.horizon, "row"), findings(*dataset));
  return {std::move(dataset), summary};
}

OpenedData open_labelled_file(const DataOptions& options, std::uint64_t seed) {
  LabelledOptions labelled;
  take_table_options(options, labelled);
  labelled.sequence_column = options.sequence_column.value_or(labelled.sequence_column);
  labelled.label_column = options.label_column.value_or(labelled.label_column);
  labelled.inputs = options.columns;
  labelled.categories = options.categories;
  labelled.seed = seed;
  auto dataset = open_labelled(options.sources, labelled, options.origin);
  const DataDescription& data = dataset->description();
  const std::string summary = fmt::format("{} of {} in {} classes, {}", counted(dataset->training_steps(), "sequence"),
                                          column_list(data.inputs), data.labels.classes.size(),
                                          held_out(labelled.validation_fraction, "another"));
  return {std::move(dataset), summary};
}

OpenedData open_labelled_text_file(const DataOptions& options, std::uint64_t seed) {
  LabelledTextOptions texts;
  take_table_options(options, texts);
  texts.text_column = options.text_column;
  texts.label_column = options.label_column.value_or("");
  texts.longest = options.longest;
  texts.seed = seed;
  auto dataset = open_labelled_texts(options.sources, texts, options.origin);
  const std::string summary =
      fmt::format("{} in {} classes, {}", counted(dataset->training_steps(), "text"),
                  dataset->description().labels.classes.size(), held_out(texts.validation_fraction, "of each another"));
  return {std::move(dataset), summary};
}

OpenedData open_sound_files(const DataOptions& options) {
  if (!options.target.empty() && !is_sound_file(options.source) && !std::filesystem::exists(options.target)) {
    fail(ErrorCode::invalid_argument,
         "--target is the sound file that a model of {} is to produce; did you mean '--target-columns {}'?",
         printable(options.source), shell_word(options.target));
  }
  require_given(options.target, "--target, the recorded output of the effect to learn,");
  if (options.sources.size() > 1) {
    fail(ErrorCode::invalid_argument, "one argument too many: '{}'", printable(options.sources[1]));
  }
  SoundOptions sound;
  if (options.validation_fraction) sound.validation_fraction = *options.validation_fraction;
  sound.latency = options.latency;
  auto dataset = open_sound(options.source, options.target, sound, options.origin);
  const auto seconds =
      static_cast<double>(dataset->training_steps()) / static_cast<double>(dataset->description().sample_rate);
  const std::string summary =
      fmt::format("{:.3g} s at {} Hz, {}; target {}", seconds, dataset->description().sample_rate,
                  held_out(sound.validation_fraction, "another"), printable(options.target));
  return {std::move(dataset), summary};
}

OpenedData open_builtin_task(const DataOptions& options, std::uint64_t seed) {
  TaskOptions task = options.task;
  task.seed = seed;
  const std::string name = task_name(options.source);
  try {
    auto dataset = open_task(name, task);
    return {std::move(dataset), fmt::format("generated sequences of {}, validated on {}", counted(task.length, "step"),
                                            counted(task.validation_length, "step"))};
  } catch (const Error& error) {
    // The task calls it length; on the command line --length is the window of a text.
    const auto words = [](const std::string& setting, const std::string&) {
      if (setting == "task") return std::string();
      std::string option = setting == "length" ? "--task-length" : "--" + setting;
      std::ranges::replace(option, '_', '-');
      return option;
    };
    throw Error(error.code(), error.message().text(words), error.fields());
  }
}

}  // namespace

void add_kind_option(Options& options, std::optional<DataKind>& kind) {
  options.choice("--as", kind,
                 {{"text", DataKind::text},
                  {"series", DataKind::series},
                  {"labelled", DataKind::labelled},
                  {"texts", DataKind::labelled_texts},
                  {"sound", DataKind::sound}},
                 "Kind of data [from the file's name and header]");
}

void add_data_options(Options& options, DataOptions& data) {
  options.group("Data");
  add_kind_option(options, data.kind);
  options.add("--columns", data.columns, "A,B", "Columns to read [all numeric ones]");
  options.gives("inputs");
  options.add(
      "--categories", data.categories, "auto|none|A,B",
      "Columns to encode one-hot: one input for each different value [auto: text columns with few different values]");
  options.add("--target-columns", data.series.targets, "C,D", "Columns of a series to forecast [those read]");
  options.gives("targets");
  options.add("--target", data.target, "FILE", "Sound: the recorded output of the effect or amplifier to learn");
  options.add("--latency", data.latency, "SAMPLES",
              "Sound: samples by which the target follows the input; below 0: it is ahead [by cross-correlation]");
  options.add("--horizon", data.series.horizon, "K", "Rows ahead to forecast");
  options.add("--group", data.series.group, "COLUMN",
              "Column that names the series of a row, such as a shop: one model learns many series of one file");
  options.flag("--group-by-file", data.series.group_by_file,
               "One model learns many files with one series each, named after its file");
  options.add("--known", data.series.known, "A,B",
              "Columns that are known in advance, such as prices and holidays; the model also reads their future rows");
  options.add("--season", data.series.season, "N", "Length of the season in rows; 1: none, 0: find it");
  options.choice("--transform", data.choices.transform,
                 {{"auto", Transform::automatic}, {"none", Transform::none}, {"log", Transform::logarithm}},
                 "log: learn the logarithms of the values; none: the values [auto: what forecasts better]");
  options.flag("--allow-negative", data.series.allow_negative,
               "Let forecasts be negative [at least 0 for columns that are never negative and often near 0]");
  options.add("--calendar", data.choices.calendar, "auto|none|day,week,year",
              "Use the time of day, the day of the week or the day of the year as inputs [auto: cycles that the "
              "training rows contain twice and follow]");
  options.add("--date-column", data.choices.date_column, "NAME",
              "Column with the dates of a series [the first column of dates]");
  options.choice("--irregular", data.choices.irregular,
                 {{"auto", Irregular::automatic},
                  {"ignore", Irregular::ignore},
                  {"elapsed", Irregular::elapsed},
                  {"fill", Irregular::fill},
                  {"refuse", Irregular::refuse}},
                 "Rows at irregular dates. ignore: read them as they are; elapsed: add the time since the last row as "
                 "an input; fill: insert missing rows as missing values; refuse: an error [auto: by the dates]");
  options.add("--sequence-column", data.sequence_column, "NAME", "Column that names the sequence of a row [sequence]");
  options.add(
      "--label-column", data.label_column, "NAME",
      "Column with the label of the sequence [label], or of the text in its row [label, class, sentiment, topic, ...]");
  options.add("--text-column", data.text_column, "NAME",
              "Column with the labelled texts [the longest texts that mostly differ]");
  options.add("--longest", data.longest, "N", "Labelled texts: bytes to read of each; longer texts are cut");
  add_table_options(options, data.table,
                    "Empty values. refuse: an error; carry: the last value; interpolate: linear interpolation; mask: "
                    "the last value, left out of the loss and scores [refuse]",
                    "refuse");
  options.choice("--header", data.table.header, {{"yes", true}, {"no", false}},
                 "Whether the first row has the names of the columns [found from the row]");
  options.flag("--bytes", data.bytes, "A text: read any file, including programs, pictures and archives");
  options.choice("--tokens", data.tokens,
                 {{"uint8", TokenType::uint8}, {"uint16", TokenType::uint16}, {"uint32", TokenType::uint32}},
                 "Files of token ids without a header, such as those of nanoGPT; .npy files need no type");
  options.add("--vocabulary", data.vocabulary, "N",
              "Token ids are below N; 0: find the largest [256 for bytes and uint8]");
  options.add("--validation-fraction", data.validation_fraction, "P",
              "Fraction of the data in the hold-out set [0.05 for a text, but at most 8 MB; 0.2 otherwise]");
  options.group("Built-in tasks");
  options.add("--task-length", data.task.length, "T", "Time steps of training sequences");
  options.add("--validation-length", data.task.validation_length, "T", "Time steps of validation sequences");
  options.add("--modulus", data.task.modulus, "M", "modular: the modulus [5]");
  options.add("--copy-tokens", data.task.copy_tokens, "N", "copying: tokens to remember; recall: pairs [10]");
}

void add_table_options(Options& options, TableOptions& table, const std::string& missing, const std::string& undated) {
  options.add("--delimiter", table.delimiter, "CHAR",
              "Character between the values of a row, or 'tab' [found from the file]");
  options.choice("--decimal", table.decimal, {{".", '.'}, {",", ','}, {"point", '.'}, {"comma", ','}},
                 "Decimal separator of numbers [found from the file]");
  options.choice("--missing", table.missing,
                 {{"refuse", Missing::refuse},
                  {"carry", Missing::carry},
                  {"interpolate", Missing::interpolate},
                  {"mask", Missing::mask}},
                 missing);
  options.choice(
      "--undated", table.undated, {{"refuse", Undated::refuse}, {"drop", Undated::drop}},
      fmt::format("Rows of a series without a readable date, such as 2023-02-30 or a line 'Total'. refuse: an "
                  "error; drop: leave them out [{}]",
                  undated));
}

void add_scoring_options(Options& options, Scoring& scoring, TableOptions& table, bool& allow_negative) {
  options.flag("--allow-negative", allow_negative,
               "A series: let forecasts be negative that are at least 0 otherwise, as in a model of rain");
  options.add("--sequence-column", scoring.rows.sequence_column, "NAME", "Column that names the sequence of a row");
  options.add("--label-column", scoring.label_column, "NAME",
              "Column with the label of the sequence or text [label; for texts also class, sentiment, ...]");
  add_table_options(options, table,
                    "Empty values. refuse: an error; all others: the last value of their column [as in training]",
                    "as in training");
  options.add("--threads", scoring.execution.threads, "N", "CPU threads; 0: all");
}

TableFormat TableOptions::format() const { return {delimiter_of(delimiter), decimal.value_or('\0'), header}; }

RowFormat TableOptions::row_format() const {
  return {
      .delimiter = delimiter_of(delimiter), .decimal = decimal.value_or('\0'), .missing = missing, .undated = undated};
}

bool is_sound_file(const std::string& path) {
  const std::string extension = path.substr(std::min(path.rfind('.'), path.size()));
  for (const char* known : {".wav", ".WAV", ".aiff", ".aif", ".flac", ".ogg", ".w64"}) {
    if (extension == known) return true;
  }
  return false;
}

DataKind kind_of(const DataOptions& options) {
  if (options.source.starts_with(task_prefix)) return DataKind::task;
  if (options.kind) return *options.kind;
  if (!options.target.empty() || is_sound_file(options.source)) return DataKind::sound;
  if (!options.text_column.empty()) return DataKind::labelled_texts;
  switch (guess_kind(options.sources, options.table.format())) {
    case SourceKind::text:
      return DataKind::text;
    case SourceKind::series:
      if (options.label_column && !options.sequence_column &&
          holds_labelled_texts(options.sources, options.table.format(), *options.label_column)) {
        return DataKind::labelled_texts;
      }
      return options.sequence_column || options.label_column ? DataKind::labelled : DataKind::series;
    case SourceKind::labelled_texts:
      return options.sequence_column ? DataKind::labelled : DataKind::labelled_texts;
    case SourceKind::labelled:
      break;
  }
  return DataKind::labelled;
}

void refuse_foreign_options(const CLI::App& app, const DataOptions& options, DataKind kind) {
  using enum DataKind;
  struct Scope {
    std::initializer_list<DataKind> kinds;
    std::initializer_list<const char*> options;
  };
  static const std::initializer_list<Scope> scopes = {
      {{text, series, labelled, labelled_texts, sound}, {"--as"}},
      {{labelled_texts}, {"--text-column", "--longest"}},
      {{sound}, {"--target", "--latency"}},
      {{series, labelled}, {"--columns", "--categories"}},
      {{series},
       {"--target-columns", "--horizon", "--group", "--group-by-file", "--irregular", "--undated", "--known",
        "--season", "--transform", "--calendar", "--date-column", "--no-linear", "--allow-negative"}},
      {{labelled}, {"--no-filters", "--sequence-column"}},
      {{labelled, labelled_texts}, {"--label-column"}},
      {{series, labelled, labelled_texts}, {"--delimiter", "--decimal", "--header", "--missing"}},
      {{text}, {"--bytes", "--tokens", "--vocabulary"}},
      {{text, series, labelled, labelled_texts, sound}, {"--validation-fraction"}},
      {{task}, {"--task-length", "--validation-length", "--modulus", "--copy-tokens"}},
      {{text, series, sound}, {"--length", "--no-carry"}},  // the others' sequences are never cut
      {{series}, {"--no-changes"}},
  };
  for (const Scope& scope : scopes) {
    if (std::ranges::find(scope.kinds, kind) != scope.kinds.end()) continue;
    refuse_given(app, scope.options,
                 fmt::format("does not apply to {}: {} is read as {}", describe(kind), printable(options.source),
                             describe(kind)));
  }
}

OpenedData open_data(const CLI::App& app, const DataOptions& options, DataKind kind, std::uint64_t seed) {
  const auto open = [&] {
    switch (kind) {
      case DataKind::text:
        return open_text_file(options);
      case DataKind::series:
        return open_series_file(options);
      case DataKind::labelled:
        return open_labelled_file(options, seed);
      case DataKind::labelled_texts:
        return open_labelled_text_file(options, seed);
      case DataKind::sound:
        return open_sound_files(options);
      case DataKind::task:
        break;
    }
    return open_builtin_task(options, seed);
  };
  const bool is_json =
      !options.kind && kind != DataKind::task && is_converted_table(options.source) && !options.source.ends_with(".ts");
  OpenedData opened;
  try {
    opened = open();
  } catch (const Error& error) {
    const bool has_bytes = is_json && error.code() == ErrorCode::bad_input;
    const char* const remedy = has_bytes ? "; --as text reads the bytes of the file" : "";
    throw Error(error.code(), error.message().text(option_words(app)) + remedy, error.fields());
  }
  opened.kind = kind;
  for (const Message& finding : opened.dataset->reading()) opened.reading.push_back(finding.text(option_words(app)));
  const auto undated = std::ranges::find(opened.reading, rows_without_dates);
  if (undated != opened.reading.end() && options.kind) {
    opened.reading.erase(undated);  // as somebody knows
  } else if (undated != opened.reading.end()) {
    *undated +=
        "; if they are a series, --as series says so; if they are sequences with labels, --sequence-column and "
        "--label-column name both; other rows need a model that knows no order";
  }
  const bool table = kind == DataKind::series || kind == DataKind::labelled || kind == DataKind::labelled_texts;
  if (table && !options.kind && is_unnamed_table(options.sources)) {
    opened.reading.insert(opened.reading.begin(), "a table, as its first lines show; --as text reads its bytes");
  }
  if (kind == DataKind::text && !options.kind && is_named_table(options.sources)) {
    opened.reading.insert(
        opened.reading.begin(),
        "a text, byte by byte, as no column with numbers or with labels was found; --as text reads it "
        "so without this note");
  }
  return opened;
}

std::string task_name(const std::string& source) {
  return source.starts_with(task_prefix) ? source.substr(task_prefix.size()) : "";
}

char delimiter_of(const std::string& option) {
  if (option.empty()) return '\0';
  if (option == "tab" || option == "\\t") return '\t';
  if (option.size() == 1) return option.front();
  fail(ErrorCode::invalid_argument, "--delimiter must be one character or 'tab', not '{}'", printable(option));
}

}  // namespace penstock::cli
