#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "penstock/data/dataset.h"
#include "penstock/data/row_reader.h"

/// Reading the rows of a table for models of series and labelled sequences: row by row, or all at once by series.
namespace penstock {

/// A source of the lines of a table.
class Lines {
 public:
  virtual ~Lines() = default;
  /// Returns the name of the source in messages: a path, or "-".
  virtual const std::string& name() const = 0;
  /// Reads the next line without its line end. Returns false at the end.
  virtual bool line(std::string& line) = 0;
};

/// Names columns that matter besides the model's inputs, and says how rows are written.
struct RowOptions {
  std::vector<std::string> keep;             ///< Columns to return in Rows::kept().
  std::string sequence_column = "sequence";  ///< Column of sequence names, for classifiers; it may be absent.
  RowFormat format;
};

/// Iterates over the rows of a table as a model reads them.
class Rows {
 public:
  /// Reads the header. Throws Error: bad_input if there is none or it lacks a column that the model needs;
  /// invalid_argument if a column of RowOptions::keep does not exist.
  Rows(Lines& input, const DataDescription& data, const RowOptions& options);
  /// Reads a table in memory. The last line of a text needs no line end; columns have their names and need no
  /// RowOptions::format for them.
  Rows(Table table, const DataDescription& data, const RowOptions& options);

  /// Returns the name of the source in messages.
  const std::string& name() const { return name_; }

  /// Result of next().
  enum class Kind {
    row,
    missing,  ///< A row that a regular calendar has and the input lacks; kept() is that of the next row of the input.
    blank,    ///< A blank line.
    end,      ///< End of the input.
  };
  /// Reads the next row. Skips rows that are left out for their date. Throws what RowReader::read() throws, and
  /// Error(interrupted) if the user asked to stop.
  Kind next();
  /// Returns the number of missing rows so far.
  Index missing() const { return missing_; }

  const RowReader& reader() const { return *reader_; }
  RowReader& reader() { return *reader_; }
  /// Returns the number of values so far that were missing or unreadable and were replaced by the last ones.
  Index replaced() const { return reader_->findings().replaced.count; }

  /// Returns the normalised features [I] of the last row.
  const std::vector<float>& features() const { return features_; }
  /// Returns the raw targets of the last row, as RowReader::target_values(); NaN for a missing row.
  std::span<const double> target_values() const { return target_values_; }
  /// Returns the values of the columns RowOptions::keep in the last row.
  const std::vector<std::string>& kept() const { return kept_; }
  /// Returns the date of the last row, as RowReader::date(); empty for a missing row.
  std::optional<double> date() const;
  /// Returns the sequence name of the last row; empty without a sequence column.
  const std::string& sequence() const { return sequence_; }
  /// Returns whether there is a sequence column.
  bool has_sequences() const { return sequence_position_.has_value(); }
  /// Returns whether the last row belongs to another sequence than the row before it.
  bool starts_sequence() const { return reader_->starts_sequence(); }

 private:
  std::string name_;
  std::unique_ptr<Lines> text_;  // of a table in memory
  Lines* input_ = nullptr;       // null: rows come from `columns_`, next row `next_`
  std::shared_ptr<const data::TableColumns> columns_;
  std::size_t next_ = 0;
  std::string line_;
  std::optional<RowReader> reader_;
  std::vector<std::optional<std::size_t>> kept_positions_;  // empty: the series name from the file name
  std::optional<std::size_t> sequence_position_;
  std::vector<float> features_;
  std::vector<std::string> kept_;
  std::vector<double> target_values_;
  std::string sequence_;
  std::vector<float> row_;      // features of the row after the missing rows
  std::size_t handed_out_ = 0;  // values of missing rows
  Index missing_ = 0;
  bool waiting_ = false;  // the first line is a row that was not read yet
  bool waits_ = false;    // missing rows precede the last row

  void open_lines(const DataDescription& data, RowFormat format);
  void find_columns(const DataDescription& data, const RowOptions& options);
  /// Reads the next line or row of columns; empty at the end, false as RowReader::read().
  std::optional<bool> read();
  std::optional<Kind> next_of_missing();
};

/// Calls add() for every row and finish() after the last row of every labelled sequence. A sequence is a run of rows
/// with one value in the sequence column, or, without that column, the rows up to a blank line. finish() may be called
/// without a preceding add().
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

/// All rows of one series. They need not be consecutive in the file.
struct GroupedRows {
  std::string name;
  DataDescription data;               ///< Description with the scaling of this series.
  bool trained = true;                ///< True if training saw the series; if not, its own rows give the scaling.
  std::vector<float> features;        ///< [rows + to_come, I], normalised.
  std::vector<double> target_values;  ///< [rows, targets]: as RowReader::target_values().
  std::vector<std::vector<std::string>> kept;        ///< [rows]: values of RowOptions::keep.
  std::vector<std::vector<double>> values;           ///< [rows]: results of GroupReading::values_of.
  std::vector<std::optional<double>> dates;          ///< [rows]: as RowReader::date().
  std::vector<bool> missing;                         ///< [rows]: whether the file lacks the row.
  Index to_come = 0;                                 ///< Number of future rows, with values that are known in advance.
  std::vector<std::optional<double>> dates_to_come;  ///< [to_come]: their dates.

  /// Returns how many future rows a forecast from row `row` lacks; 0 for a model that reads no later rows.
  Index lacking(Index row) const { return data.lacking_ahead(static_cast<Index>(kept.size()) + to_come - 1 - row); }
};

/// Options of read_groups().
struct GroupReading {
  /// Number of first rows that give the scaling of a series that training did not see; 0: all rows.
  Index scaled_by = 0;
  /// Called for each row; `missing`: the file lacks the row. Its results go to GroupedRows::values. May be empty.
  std::function<std::vector<double>(const Rows&, bool missing)> values_of = {};
};

/// Reads all rows and returns the series in the order of their first rows. A model without groups has one series
/// without a name. Throws Error(bad_input) for a bad row, or if a row with targets follows a future row of its series.
std::vector<GroupedRows> read_groups(Rows& rows, const DataDescription& data, const GroupReading& reading);

}  // namespace penstock
