#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/table/field.h"

/// Copies of tables in memory, column by column.
namespace penstock::data {

/// One column: a value or none for each row.
class TableColumn {
 public:
  enum class Type {
    none,   ///< Every value is missing.
    whole,  ///< 64 bits.
    unsigned_whole,
    number,   ///< NaN is a missing value.
    truth,    ///< 0 or 1.
    time,     ///< Ticks since the start of 1970.
    decimal,  ///< Digits, with a point.
    text,
  };

  TableColumn(std::string name, Type type);
  /// Makes a column of times in ticks. `utc`: their texts end in Z.
  TableColumn(std::string name, std::int64_t ticks_a_second, bool utc);

  const std::string& name() const { return name_; }
  std::size_t rows() const { return missing_.size(); }

  void add_missing();
  /// Adds a whole number (an unsigned one by its bits), a truth value or a time.
  void add(std::int64_t value);
  void add(double value);
  /// Adds a decimal or a text. Line breaks become blanks, as in names, since a row of a stream is one line.
  void add(std::string_view text);

  bool is_time() const { return type_ == Type::time; }
  bool is_utc() const { return utc_; }
  /// Returns whether the values are kept as characters: texts and decimals.
  bool is_text() const { return type_ == Type::decimal || type_ == Type::text; }
  bool is_missing(std::size_t row) const;
  /// Returns the value of a column of numbers or decimals. It may be infinite.
  std::optional<double> number(std::size_t row) const;
  /// Returns 1 or 0 for a column of truth values.
  std::optional<double> truth(std::size_t row) const;
  /// Returns the seconds since the start of 1970 of a time in the years 1 to 9999.
  std::optional<double> seconds(std::size_t row) const;
  /// Returns the value as a CSV file would have it; empty if it is missing.
  std::string text(std::size_t row) const;

 private:
  std::string_view characters(std::size_t row) const;
  std::string time_text(std::int64_t ticks) const;

  std::string name_;
  Type type_;
  std::int64_t ticks_a_second_ = 1;
  bool utc_ = false;
  std::vector<bool> missing_;
  std::vector<std::int64_t> values_;  // or the bits of doubles; none where is_text()
  std::string characters_;            // where is_text()
  std::vector<std::size_t> ends_;     // of each of them
};

/// A table: columns with the same number of rows.
class TableColumns {
 public:
  explicit TableColumns(std::vector<TableColumn> columns) : columns_(std::move(columns)) {}

  std::size_t rows() const { return columns_.empty() ? 0 : columns_.front().rows(); }
  /// Returns the names as the fields of a header, which is line 1. Columns of places count from 1.
  std::vector<Field> header() const;
  /// Reads a row into `fields`, which refer to these columns; false behind the last row.
  bool read(std::size_t row, std::vector<Field>& fields) const;

 private:
  std::vector<TableColumn> columns_;
};

}  // namespace penstock::data
