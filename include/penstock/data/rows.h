#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "penstock/data/dataset.h"
#include "penstock/data/row_reader.h"

/// The rows of a table as models read them that do not read bytes: one after the other, or all at once series by
/// series.
namespace penstock {

/// The lines of a table, as they come.
class Lines {
 public:
  virtual ~Lines() = default;
  /// As messages call where they come from: a path, or "-".
  virtual const std::string& name() const = 0;
  /// The next line without its line end; false at the end.
  virtual bool line(std::string& line) = 0;
};

/// Those of a table in memory. The last one needs no line end.
class TextLines final : public Lines {
 public:
  explicit TextLines(Table table) : table_(std::move(table)) {}
  const std::string& name() const override { return table_.name; }
  bool line(std::string& line) override;

 private:
  Table table_;
  std::size_t position_ = 0;
};

/// Which columns of the input matter besides those that the model reads, and how the rows are written.
struct RowOptions {
  std::vector<std::string> keep;             ///< Copied to the output.
  std::string sequence_column = "sequence";  ///< Of labelled sequences; it need not be there.
  RowFormat format;
};

/// Reads the header at once. Throws Error(bad_input) if there is none or it lacks a column, and Error(invalid_argument)
/// if a column to be kept is not there.
class Rows {
 public:
  Rows(Lines& input, const DataDescription& data, const RowOptions& options);

  /// As messages call the stream.
  const std::string& name() const { return input_.name(); }

  enum class Kind {
    row,
    missing,  ///< One that the input has not and a regular calendar has, in front of the row whose columns are kept.
    blank,
    end,
  };
  Kind next();
  /// How many were missing so far.
  Index missing() const { return missing_; }

  const RowReader& reader() const { return *reader_; }
  RowReader& reader() { return *reader_; }
  /// Values that were missing, or could not be read, and were replaced by the last ones.
  Index replaced() const { return reader_->replaced(); }

  const std::vector<float>& features() const { return features_; }
  /// As RowReader::target_values(): of a row that is missing, none is a number.
  std::span<const double> target_values() const { return target_values_; }
  const std::vector<std::string>& kept() const { return kept_; }
  /// As RowReader::date(): of a row that is missing, nothing.
  std::optional<double> date() const;
  /// Of the last row; empty without such a column.
  const std::string& sequence() const { return sequence_; }
  bool has_sequences() const { return sequence_position_.has_value(); }
  /// Whether the last row belongs to another sequence than the one before it.
  bool starts_sequence() const { return reader_->starts_sequence(); }

 private:
  Lines& input_;
  std::string line_;
  std::optional<RowReader> reader_;
  std::vector<std::optional<std::size_t>> kept_positions_;  // none: what the file calls the series
  std::optional<std::size_t> sequence_position_;
  std::vector<float> features_;
  std::vector<std::string> kept_;
  std::vector<double> target_values_;
  std::string sequence_;
  std::vector<float> row_;      // features of the row behind those that are missing
  std::size_t handed_out_ = 0;  // features of missing rows
  Index missing_ = 0;
  bool waiting_ = false;  // the first line is a row, and not read yet
  bool waits_ = false;    // the last row, for those that are missing in front of it

  std::optional<Kind> next_of_missing();
};

/// Calls add() for every row, and finish() behind the last one of every labelled sequence: rows of one value in the
/// sequence column, or where there is none rows up to a blank line. finish() is also called where no row was added.
template <class Add, class Finish>
void for_each_sequence(Rows& rows, const Add& add, const Finish& finish) {
  for (auto kind = rows.next(); kind != Rows::Kind::end; kind = rows.next()) {
    if (kind == Rows::Kind::blank ? !rows.has_sequences() : rows.starts_sequence()) finish();
    if (kind == Rows::Kind::blank) {
      if (!rows.has_sequences()) rows.reader().restart();
      continue;
    }
    add();
  }
  finish();
}

/// The rows of one series, which may be apart in the file.
struct GroupedRows {
  std::string name;
  DataDescription data;                        ///< With its scaling.
  bool trained = true;                         ///< Whether training saw it; otherwise its rows say how it is scaled.
  std::vector<float> features;                 ///< [rows + to_come, I]
  std::vector<double> target_values;           ///< [rows, targets]: as RowReader::target_values()
  std::vector<std::vector<std::string>> kept;  ///< Columns to be kept, of each row.
  std::vector<std::vector<double>> values;     ///< What `values_of` said of each row.
  std::vector<std::optional<double>> dates;    ///< As RowReader::date(), of each row.
  std::vector<bool> missing;                   ///< Of each row: the file has none.
  Index to_come = 0;                           ///< Rows behind these that only say what is known in advance.
  std::vector<std::optional<double>> dates_to_come;  ///< As RowReader::date(), of each of those.

  /// How many more of them forecasts from a row need; 0 for a model that reads nothing of later rows.
  Index lacking(Index row) const { return data.lacking_ahead(static_cast<Index>(kept.size()) + to_come - 1 - row); }
};

struct GroupReading {
  /// So many first rows of a series that training did not see say how it is scaled; 0: all.
  Index scaled_by = 0;
  /// Called with each row as it is read, and whether it is missing in the file; may be empty.
  std::function<std::vector<double>(const Rows&, bool missing)> values_of = {};
};

/// Reads all rows, series by series in the order of their first rows; one series without a name where the model has no
/// groups.
std::vector<GroupedRows> read_groups(Rows& rows, const DataDescription& data, const GroupReading& reading);

}  // namespace penstock
