#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "penstock/description/column.h"
#include "penstock/types.h"

namespace penstock::data {

class TableColumn;

/// One value of a row: a text, or a value of a column in memory. The text of the latter is made on demand.
class Field {
 public:
  Field() = default;
  Field(std::string text, Index at_line, Index at_column) : line(at_line), column(at_column), text_(std::move(text)) {}

  /// Turns this into an empty text at a place. Returns the text, to be filled.
  std::string& start(Index at_line, Index at_column);
  /// Turns this into the value of a column in memory. The column must outlive the field.
  void refer(const TableColumn& source, std::size_t row, Index at_line, Index at_column);

  /// Returns the text without quotes and without the blanks around it; empty for a missing value of a column.
  const std::string& text() const;
  /// Returns whether the value is missing: for a text, as is_missing(std::string_view) says.
  bool is_missing() const;
  /// Reads the value as a number: a text as parse_number() does. std::errc{} if it is one.
  std::errc number(char decimal, double& value) const;
  /// Returns 1 or 0 for a truth value: for a text, as parse_truth() does.
  std::optional<double> truth() const;
  /// Returns the seconds since the start of 1970. A time of a column needs no form. Texts and numbers are read in
  /// `form`; `decimal` starts the fraction of a number in a text. Nothing if the value is no date.
  std::optional<double> date(DateForm form, char decimal) const;
  /// Returns the time zone that a date names, such as "Z" or "+01:00"; empty if it names none.
  std::string_view zone() const;

  Index line = 0, column = 0;

 private:
  /// Returns whether the value has to be parsed.
  bool is_text() const;

  mutable std::string text_;
  const TableColumn* source_ = nullptr;
  std::size_t row_ = 0;  // of `source_`
  mutable bool has_text_ = true;
};

}  // namespace penstock::data
