#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "penstock/data_description.h"
#include "penstock/error.h"
#include "penstock/sources.h"

/// The interface of all datasets: batches for training and validation.
namespace penstock {

/// One batch for training or validation. Fields that the task does not need are empty.
struct Example {
  Index rows = 0;                    ///< B
  Index steps = 0;                   ///< T
  std::vector<std::int32_t> tokens;  ///< [B, T]: token inputs.
  std::vector<float> features;       ///< [B, T, I]: numeric inputs, normalised.
  std::vector<std::int32_t> labels;  ///< [B, T]: class targets; -1: the step is not scored.
  std::vector<float> targets;        ///< [B, T, O]: numeric targets, normalised.
  std::vector<float> weights;        ///< [B, T, O]: 1 where `targets` is scored, otherwise 0.
  std::vector<Index> lengths;        ///< [B]: steps of each row; empty: all rows have T steps.
  std::vector<std::uint8_t> reset;   ///< [B, T]: not 0: the state is zeroed before this step; empty: never.
  /// True if step 0 continues the previous Example of this dataset. Truncated back-propagation then carries the state.
  bool continues = false;
};

namespace data {
class LabelledPasses;
class TableColumns;
}  // namespace data

namespace training {
class SeriesRows;
}  // namespace training

/// A source of training and validation batches. Its state is a short text, position(), with which a resumed run
/// continues at the same batch.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual const DataDescription& description() const = 0;
  /// Returns the number of scored training steps in one epoch; 0 for a task that is generated without end.
  virtual Index training_steps() const = 0;
  /// Returns the number of scored steps of the hold-out set; 0 for a task that is generated without end.
  virtual Index held_out_steps() const { return 0; }
  /// Fills `example` with the next training batch: B = `rows` rows of at most T = `steps` steps. Labelled sequences and
  /// tasks are never cut; T is then the length of the longest sequence in the batch, whatever `steps` says.
  virtual void next(Index rows, Index steps, Example& example) = 0;
  /// Fills `example` with validation batch `i`, which is the same in every call. Returns false and leaves `example`
  /// unchanged if there is no such batch.
  virtual bool validation(Index i, Index rows, Index steps, Example& example) const = 0;
  /// Returns the position in the training data and the random state as JSON.
  virtual std::string position() const = 0;
  /// Continues at a position that position() returned. Throws Error(incompatible) for the position of another dataset.
  virtual void restore(const std::string& position) = 0;
  /// Returns what was detected about the files, one finding per entry: "separator ';', decimal ','", "3 columns read, 1
  /// left out: week (dates)".
  virtual std::vector<Message> reading() const { return {}; }
  /// Internal. Returns the rows of a time series; null for other data.
  virtual const training::SeriesRows* series_rows() const { return nullptr; }
  /// Internal. Returns labelled sequences or texts; null for other data.
  virtual const data::LabelledPasses* labelled_passes() const { return nullptr; }
};

/// A table in memory: text in the format of a file, or columns (table_of_arrow()).
struct Table {
  std::string name;                                             ///< Name of the table in messages.
  std::string text = {};                                        ///< Content, such as CSV; empty for columns.
  std::shared_ptr<const data::TableColumns> columns = nullptr;  ///< Shared by copies of the table.
};

/// Tables to read: files, by one path or Sources, or tables in memory.
struct TableSources {
  // NOLINTBEGIN(google-explicit-constructor): callers name a path or a table
  TableSources(const char* path) : paths{path} {}
  TableSources(std::string path) : paths{std::move(path)} {}
  TableSources(std::initializer_list<std::string> files) : paths(files) {}
  TableSources(Sources files) : paths(std::move(files)) {}
  TableSources(Table table) : tables{std::move(table)} {}
  TableSources(std::vector<Table> in_memory) : tables(std::move(in_memory)) {}
  // NOLINTEND(google-explicit-constructor)

  /// Returns the name of the first file or table; empty without any.
  std::string name() const { return !tables.empty() ? tables.front().name : paths.empty() ? "" : paths.front(); }

  Sources paths;              ///< Files and folders.
  std::vector<Table> tables;  ///< Read instead of `paths`, unless it is empty.
};

}  // namespace penstock
