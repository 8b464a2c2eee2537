#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "options.h"
#include "penstock/data.h"

namespace penstock::cli {

enum class DataKind { text, series, labelled, task };

/// What the options say about the data; which of them apply depends on the kind.
struct DataOptions {
  std::string source;  ///< A path, or "task:NAME".
  std::optional<DataKind> kind;
  std::vector<std::string> columns, targets;
  Index horizon = 1;
  std::optional<std::string> sequence_column, label_column;  ///< "sequence" and "label" if not given.
  std::string delimiter;
  std::optional<double> validation_fraction;
  Index season = 0;
  Transform transform = Transform::automatic;
  bool autoregression = true;  ///< A series: with a linear forecast beside the layers.
  bool from_last = false;      ///< A series: scaled for forecasts that start from the last value.
  TaskOptions task;
};

struct OpenedData {
  std::unique_ptr<Dataset> dataset;
  DataKind kind = DataKind::text;
  /// For a person: "4,305,367 bytes of text, the last 5 % held out".
  std::string summary;
};

/// Declares the options in the groups "Data" and "Built-in tasks".
void add_data_options(Options& options, DataOptions& data);

/// "task:parity" is a task; FILE.csv and FILE.tsv with the columns `sequence` and `label` are labelled sequences,
/// without them a series; everything else is a text.
DataKind kind_of(const DataOptions& options);

/// Throws Error(invalid_argument) for options (as given to `app`) that do not apply to the kind of data.
void refuse_foreign_options(const CLI::App& app, const DataOptions& options, DataKind kind);

OpenedData open_data(const DataOptions& options, DataKind kind, std::uint64_t seed);

/// "task:parity" -> "parity"; empty for anything else.
std::string task_name(const std::string& source);

/// The character meant by --delimiter ("tab", ";"), or by the name of the file if that was not given.
char delimiter_of(const std::string& option, const std::string& path);

}  // namespace penstock::cli
