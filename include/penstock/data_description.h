#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "penstock/description/column.h"
#include "penstock/description/labels.h"
#include "penstock/description/series.h"
#include "penstock/description/table.h"
#include "penstock/description/task.h"
#include "penstock/types.h"

/// Data descriptions: the columns, scaling, dates and labels in a model file. With them, new data are read as in
/// training. The parts of one kind of data are declared in penstock/description.
namespace penstock {

/// Describes the data of a model: task, columns, scaling, dates, groups and labels.
struct DataDescription {
  Task task = Task::language;
  Index vocabulary = 0;         ///< > 0: inputs are tokens 0..vocabulary-1; 0: inputs are the columns `inputs`.
  std::vector<Column> inputs;   ///< Input features, in the order in which the model reads them.
  std::vector<Column> targets;  ///< forecast: the predicted columns.
  TableDescription table;       ///< Tables of rows.
  SeriesDescription series;     ///< forecast
  LabelDescription labels;      ///< classify
  Index sample_rate = 0;        ///< Samples per second of sound with one input and one output channel; 0: no sound.
  Index latency = 0;            ///< Sound: sample p of the input was recorded as sample p + latency of the target.

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
  bool labels_texts() const { return !labels.text_column.empty(); }
  /// Returns whether a target is also an input, so forecasts can start from its last value.
  bool forecasts_an_input() const;
  /// Returns whether some inputs are values of later rows.
  bool reads_ahead() const;
  /// Returns the number of later rows that a forecast needs but does not have if `behind` rows follow its row; 0 if
  /// nothing is missing.
  Index lacking_ahead(Index behind) const {
    return reads_ahead() && behind < series.horizon ? series.horizon - behind : 0;
  }
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
  std::unordered_map<std::string, std::vector<ErrorDistribution::Ending>> endings_;
};

/// Fills the inputs that read later rows (Column::ahead) in `features` [rows, I], the rows of one series. Beyond the
/// last row they repeat the last row.
void fill_ahead(const DataDescription& data, std::span<float> features);

}  // namespace penstock
