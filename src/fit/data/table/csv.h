#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/table/field.h"
#include "penstock/types.h"

/// Reading of comma-separated values (RFC 4180) with errors that say where: "file:line:column: what was found".
/// Lines and columns count from 1, columns in bytes, as compilers do, so that an editor can jump there.
namespace penstock::data {

/// False for characters that numbers, quotes or line ends need.
bool can_delimit(char delimiter);
/// Throws Error(invalid_argument) unless it can.
void check_delimiter(char delimiter);

/// Appends a text in double quotes to a table. A line break is a blank: a row of a table that is read as it comes ends
/// there.
void append_quoted(std::string_view text, std::string& table);

/// Splits a text into records. Lines may end in LF, CRLF or CR, a byte order mark is skipped, quoted fields may hold
/// delimiters, doubled quotes and line breaks; blank lines are allowed only at the end. Where the delimiter is a blank,
/// any number of blanks and tabs is one, and those at the ends of a line are none.
class CsvReader {
 public:
  /// `text` and `source` must outlive the reader; `source` names the text in messages, its first line has number
  /// `line`.
  CsvReader(std::string_view text, char delimiter, std::string_view source, Index line = 1);

  /// Reads the next record and reuses the memory of `fields`; false at the end.
  /// Throws Error(bad_input) for a quote that is never closed, text behind a closing quote, or a blank line in the
  /// middle.
  bool next(std::vector<Field>& fields);

 private:
  void read_field(Field& field);
  void read_quoted(const Field& field, std::string& text);
  bool pass_delimiter();
  void skip_blanks();
  bool is_blank(char c) const;
  bool ends_field(char c) const;
  bool only_blanks_left() const;
  bool at_line_end() const;
  void end_line();
  Index column() const;

  std::string_view text_;
  char delimiter_;
  std::string_view source_;
  std::size_t position_ = 0;
  std::size_t line_begin_ = 0;
  Index line_;
};

/// Type of a column's fields, by its first value.
enum class ColumnKind { unknown, number, boolean };

/// The columns of a table: their names, and how their fields are read.
class TableHeader {
 public:
  /// `fields` are the first record: names, or else values (`named`: false). A column without a name is called by its
  /// place: "column1". `decimal` starts the fraction of numbers. Throws Error(bad_input) for a name that is not UTF-8
  /// or there twice.
  TableHeader(const std::vector<Field>& fields, std::string source, char decimal = '.', bool named = true);

  const std::string& source() const { return source_; }
  const std::vector<std::string>& names() const { return names_; }
  /// Returns whether a column had no name of its own, like the first one that pandas writes: "" or "Unnamed: 0".
  bool is_unnamed(std::size_t column) const { return unnamed_[column]; }
  std::optional<std::size_t> find(std::string_view name) const;
  /// Returns the column of a name. Throws Error(invalid_argument) about an argument that names one that is not there.
  std::size_t column(const std::string& name, const std::string& argument) const;
  /// "a, b, c", for messages; long lists are cut.
  std::string list() const;
  /// A column more, behind all others, for one text of a column: 1 where a record has it. Files have no field for it.
  std::size_t add_category(std::size_t column, const std::string& text);
  struct Category {
    std::size_t column;
    std::string text;
  };
  /// Returns the category of a column that add_category() made; null for columns of the files.
  const Category* category(std::size_t column) const;
  /// How many columns files have.
  std::size_t width() const { return names_.size() - categories_.size(); }
  /// Throws Error(bad_input) unless the record has one field a column of the file.
  void check_width(const std::vector<Field>& record) const;
  /// Returns the field as a finite number, 1 or 0 for a truth value. `kind` is the type of the column's fields so far,
  /// and is set by the first. Throws Error(bad_input) with the place, the column's name and what was found.
  double number(const std::vector<Field>& record, std::size_t column, ColumnKind& kind) const;
  /// The field as text; throws Error(bad_input) if it is empty or not UTF-8.
  const std::string& label(const std::vector<Field>& record, std::size_t column) const;
  /// Returns whether a field is a number, including infinity and numbers out of range.
  bool looks_numeric(const Field& field) const;

 private:
  std::string source_;
  char decimal_;
  std::vector<std::string> names_;
  std::vector<bool> unnamed_;
  std::vector<Category> categories_;  // the last columns
};

/// "a, b and 3 more": at most so many of all.
std::string list_of(std::vector<std::string> all, std::size_t most = 6);

/// The field as a number if it is a finite one, written with a point.
std::optional<double> finite_number(std::string_view text);

}  // namespace penstock::data
