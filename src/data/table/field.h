#pragma once

#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "penstock/data_description.h"

namespace penstock::data {

class TableColumn;

/// One value of a row: a text, or a value of a column in memory, whose text is made only where it is asked for.
class Field {
 public:
  Field() = default;
  Field(std::string text, Index at_line, Index at_column) : line(at_line), column(at_column), text_(std::move(text)) {}

  /// Becomes an empty text at this place; returns it to be filled.
  std::string& start(Index at_line, Index at_column);
  /// Becomes the value of a column in memory, which must outlive it.
  void refer(const TableColumn& source, std::size_t row, Index at_line, Index at_column);

  /// Without quotes and without the blanks around it.
  const std::string& text() const;
  /// Whether it stands for a value that is not there; of texts those of is_missing(std::string_view).
  bool is_missing() const;
  /// The value as a number, as parse_number() reads texts.
  std::errc number(char decimal, double& value) const;
  /// 1 or 0 for a truth, as parse_truth() reads texts.
  std::optional<double> truth() const;
  /// Seconds since the start of 1970 of a time, whatever `form` says, or as read_date() reads texts and numbers.
  std::optional<double> date(DateForm form, char decimal) const;

  Index line = 0, column = 0;

 private:
  bool is_text() const;

  mutable std::string text_;
  const TableColumn* source_ = nullptr;
  std::size_t row_ = 0;  // of `source_`
  mutable bool has_text_ = true;
};

}  // namespace penstock::data
