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

namespace penstock {

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
