#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/data_description.h"
#include "penstock/error.h"

/// Reading CSV rows one by one, as a stream delivers them, into the normalised inputs of a model.
namespace penstock {

namespace data {
class TableColumns;
}

/// Says how rows differ from those that a model was trained on.
struct RowFormat {
  char delimiter = 0;  ///< Separator; 0: the model's, or the usual one under which the header has the model's columns.
  char decimal = 0;    ///< Decimal mark; 0: the model's.
  /// Treatment of missing values. Missing::refuse: an error. All others: replaced by the last value of the column, or
  /// by the training mean before there is one. Empty: as in training.
  std::optional<Missing> missing = std::nullopt;
  std::optional<Undated> undated = std::nullopt;  ///< Treatment of unreadable dates; empty: as in training.
  bool replace_bad = false;  ///< Treats fields that are not numbers, and rows of another width, as missing values.
  /// Column of sequence names: when its value changes, the reader restarts. Empty, or not in the header: no sequences.
  std::string sequence_column = {};
  std::string series = {};  ///< Name of the series, for a model whose series are files; empty: from the source's name.
  /// True if the first line is a header; empty: as in training. A model of files without a header finds columns by
  /// their position.
  std::optional<bool> header = std::nullopt;
  Index first_line = 1;  ///< Number of the first line, for messages, if other lines preceded it.
};

/// Something that was found in rows: how often, and a message about the first, worded as an error.
struct RowFinding {
  Index count = 0;
  Message first = {};  ///< Empty if there was none.

  /// Remembers a message if it is the first.
  void note(const Message& message) {
    if (first.empty()) first = message;
  }
  void add(const Message& message) {
    ++count;
    note(message);
  }
};

/// Findings of a reader in all rows so far.
struct RowFindings {
  RowFinding replaced;             ///< Values that were missing or unreadable and were replaced.
  RowFinding undated;              ///< Lines that were left out because of their date.
  RowFinding unknown_categories;   ///< Fields with a category that training did not see: all inputs of theirs are 0.
  RowFinding returning_sequences;  ///< Names of sequences that came back after other names.
  RowFinding earlier;              ///< Rows with a date before that of the row before them in their series ...
  RowFinding repeated;             ///< ... and with the same date.
  bool zoned = false;              ///< Dates name their time zone; they are read in UTC.
};

/// Returns sentences about rows that were left out, are not in order or have unknown categories, to be said at the end.
std::vector<Message> describe(const RowFindings& findings);

/// Converts lines of CSV into the normalised inputs of a model.
///
/// With a header, columns may be in any order, and columns that the model does not read are ignored.
class RowReader {
 public:
  /// Makes a reader. `first` is the first line; without a header it is also the first row and must be passed to read().
  /// `source` is the name of the stream in messages, "-" or a path. Throws Error: invalid_argument for a model of
  /// tokens; bad_input if the header lacks a column that the model needs.
  RowReader(const DataDescription& description, const std::string& first, const std::string& source,
            const RowFormat& format = {});
  /// Makes a reader of the rows of columns. `format` says only how values are treated.
  RowReader(const DataDescription& description, const data::TableColumns& columns, const std::string& source,
            const RowFormat& format = {});
  ~RowReader();
  RowReader(RowReader&&) noexcept;

  /// Reads one line into normalised features [I]. Returns false and leaves `features` unchanged for a blank line and
  /// for a row that is left out (left_out()). Inputs that read later rows are NaN until fill_ahead(). Throws
  /// Error(bad_input) with line and column for a line that is not a valid row.
  bool read(const std::string& line, std::span<float> features);
  /// Reads row number `row` of columns as those that the reader was made of. They must stay alive until the next
  /// read().
  bool read(const data::TableColumns& columns, std::size_t row, std::span<float> features);
  /// Returns whether the last line was left out because its date cannot be read (Undated::drop).
  bool left_out() const;

  /// Returns features [rows, I] of the rows that the calendar has between the last row and the row before it in its
  /// series (Irregular::fill). A model must read them before the last row. Valid until the next read().
  std::span<const float> missing_rows() const;

  /// Returns the raw values of the targets [targets] in the last row. NaN for a value that was missing or replaced, and
  /// for targets that are not inputs. Valid until the next read().
  std::span<const double> target_values() const;

  /// Returns the date of the last row in seconds since the start of 1970; empty if the model reads no dates or the row
  /// has none.
  std::optional<double> date() const;

  /// Returns whether the last row belongs to another sequence than the row before it. If a name comes back after other
  /// names, read() throws Error(bad_input); with RowFormat::replace_bad a new sequence starts instead.
  bool starts_sequence() const;

  /// Starts a new sequence with the next row: forgets the dates of earlier rows and the values that replace missing
  /// ones. Scalings of series (settle_group()) are kept.
  void restart();

  /// Returns the position of a column in the header, whether or not the model reads it; empty if there is none.
  std::optional<std::size_t> column(const std::string& name) const;
  /// Returns whether the last row lies in the future: it has no targets and only values that are known in advance. Its
  /// other features are NaN. Only for models that read ahead.
  bool is_to_come() const;

  /// Returns the text of a column, by position, in the last line that was not blank. Valid until the next read().
  std::string_view text(std::size_t column) const;

  /// Returns that text as a number in the stream's format; empty if it is missing or not a number.
  std::optional<double> number(std::size_t column) const;

  /// Returns the series of the last row and its scaling, for a model of many series. A series that training did not see
  /// is scaled by its first values until settle_group(). Valid until the next read().
  const Group& group() const;
  /// Returns whether the scaling of that series is known: from training, settle_group() or add_group().
  bool knows_group() const;
  /// Computes the scaling of a new series from its first `count` rows and returns it. `features` [rows, I], as read()
  /// returned them, are rescaled in place; later rows are read with the new scaling.
  const Group& settle_group(const std::string& name, std::span<float> features, Index count);
  /// Adds a series with a scaling that settle_group() returned before.
  void add_group(const Group& group);

  /// The last row of a series.
  struct LastRow {
    std::vector<float> values;   ///< [I], normalised: replacements for missing values.
    std::optional<double> date;  ///< Seconds since the start of 1970, if the model needs the distance between rows.
  };
  /// Returns the last row of each series with a known scaling, by name; without groups the name is empty. With it,
  /// another reader can continue where this one stops.
  std::map<std::string, LastRow> last_rows() const;
  /// Continues from rows that last_rows() returned. Ignores series that the reader does not know. Throws
  /// Error(invalid_argument) for a wrong number of values.
  void set_last_rows(const std::map<std::string, LastRow>& rows);

  /// Returns what was found in all rows so far.
  const RowFindings& findings() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;

  /// Throws Error(invalid_argument) if the reader was moved from.
  Impl& held() const;
};

}  // namespace penstock
