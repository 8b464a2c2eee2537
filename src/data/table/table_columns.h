#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/table/field.h"

/// Tables in memory, column by column, as data frames hold them. They are copies: nobody can change or free them.
namespace penstock::data {

/// A value or none for each row.
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
  /// A column of times with so many ticks a second; their texts end in Z if they are `utc`.
  TableColumn(std::string name, std::int64_t ticks_a_second, bool utc);

  const std::string& name() const { return name_; }
  std::size_t rows() const { return missing_.size(); }

  void add_missing();
  /// Of whole numbers (unsigned ones by their bits), truths and times.
  void add(std::int64_t value);
  void add(double value);
  /// Of decimals and texts. Line breaks become blanks, as in names, since a row of a stream is one line.
  void add(std::string_view text);

  bool is_time() const { return type_ == Type::time; }
  /// Whether its values are kept as texts, as decimals are, too.
  bool is_text() const { return type_ == Type::decimal || type_ == Type::text; }
  bool is_missing(std::size_t row) const;
  /// The value if it is a number, infinity included.
  std::optional<double> number(std::size_t row) const;
  /// 1 or 0 if it is a truth.
  std::optional<double> truth(std::size_t row) const;
  /// Seconds since the start of 1970 if it is a time in the years 1 to 9999.
  std::optional<double> seconds(std::size_t row) const;
  /// The value as a table in text would have it; empty if it is missing.
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

/// Columns of equally many rows.
class TableColumns {
 public:
  explicit TableColumns(std::vector<TableColumn> columns) : columns_(std::move(columns)) {}

  std::size_t rows() const { return columns_.empty() ? 0 : columns_.front().rows(); }
  /// The names, as the fields of a header. Places count columns from 1; the header is line 1.
  std::vector<Field> header() const;
  /// Reads a row into `fields`, which refer to these columns; false behind the last row.
  bool read(std::size_t row, std::vector<Field>& fields) const;

 private:
  std::vector<TableColumn> columns_;
};

}  // namespace penstock::data
