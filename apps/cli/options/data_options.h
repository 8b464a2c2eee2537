#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "options/options.h"
#include "penstock/data.h"

namespace penstock::cli {

struct Scoring;

enum class DataKind { text, series, labelled, labelled_texts, sound, task };

/// A word for each kind of data, in this order.
using WordsOfKinds = std::array<const char*, 6>;
inline const char* word_of(const WordsOfKinds& words, DataKind kind) {
  return words.at(static_cast<std::size_t>(kind));
}

/// How a table is written, as far as the options say so.
struct TableOptions {
  std::string delimiter;
  std::optional<char> decimal;
  std::optional<bool> header;
  std::optional<Missing> missing;
  std::optional<Undated> undated;

  TableFormat format() const;
  /// Returns the format of rows that a model answers.
  RowFormat row_format() const;
};

/// Options about the data; which of them apply depends on the kind.
struct DataOptions {
  std::string source;  ///< The first of `sources`, as messages call the data.
  Sources sources;     ///< Paths, or "task:NAME".
  std::optional<DataKind> kind;
  std::vector<std::string> columns, categories;
  std::optional<std::string> sequence_column, label_column;  ///< "sequence" and "label" if not given.
  std::string text_column;                                   ///< Labelled texts: found if empty.
  Index longest = 1000;                                      ///< Largest number of bytes that are read of a text.
  TableOptions table;
  bool bytes = false;
  std::optional<TokenType> tokens;
  Index vocabulary = 0;
  std::string target;  ///< Sound: what came out.
  std::optional<Index> latency;
  std::optional<double> validation_fraction;
  SeriesOptions series;   ///< Options of a series alone, except those in `choices` and `table`.
  SeriesChoices choices;  ///< How a series is forecast, and its dates.
  TaskOptions task;
  const DataDescription* origin = nullptr;  ///< Columns, horizon and labels of a model that is trained further.
};

struct OpenedData {
  std::unique_ptr<Dataset> dataset;
  /// Summary for a person: "4,305,367 bytes of text, the last 5 % held out".
  std::string summary = {};
  DataKind kind = DataKind::text;
  std::vector<std::string> reading = {};  ///< How the files were read, as far as that was guessed.
};

/// Declares --delimiter, --decimal, --missing and --undated; `missing` is the help of the third, `undated` says what is
/// done where the last is not given.
void add_table_options(Options& options, TableOptions& table, const std::string& missing, const std::string& undated);

/// Declares the options of commands that score files: --allow-negative, --sequence-column, --label-column, those of
/// tables and --threads.
void add_scoring_options(Options& options, Scoring& scoring, TableOptions& table, bool& allow_negative);

/// Declares --as.
void add_kind_option(Options& options, std::optional<DataKind>& kind);

/// Declares the options in the groups "Data" and "Built-in tasks".
void add_data_options(Options& options, DataOptions& data);

/// "task:parity" is a task; FILE.csv and FILE.tsv with the columns `sequence` and `label` are labelled sequences,
/// without them a series, or labelled texts if they plainly are; everything else is a text.
DataKind kind_of(const DataOptions& options);

/// Throws Error(invalid_argument) for options (as given to `app`) that do not apply to the kind of data.
void refuse_foreign_options(const CLI::App& app, const DataOptions& options, DataKind kind);

OpenedData open_data(const CLI::App& app, const DataOptions& options, DataKind kind, std::uint64_t seed);

/// Returns whether a file is sound by its name: WAV, AIFF, FLAC, Ogg.
bool is_sound_file(const std::string& path);

/// "task:parity" -> "parity"; empty for anything else.
std::string task_name(const std::string& source);

/// The character meant by --delimiter ("tab", ";"); 0 if it was not given.
char delimiter_of(const std::string& option);

}  // namespace penstock::cli
