#include "data/rows/stream_opening.h"

#include <algorithm>
#include <optional>

#include "base/check.h"
#include "data/table/table_format.h"
#include "data/text_encoding.h"

namespace penstock::data {

// A quoted line break cannot occur here: the stream was cut at every line end.
bool read_line(const std::string& line, char delimiter, const std::string& source, Index number,
               std::vector<Field>& fields) {
  if (!io::is_utf8(line)) return read_line(io::windows_1252_to_utf8(line), delimiter, source, number, fields);
  CsvReader reader(line, delimiter, source, number);
  if (!reader.next(fields)) return false;
  std::vector<Field> more;
  if (reader.next(more)) fail(ErrorCode::bad_input, "{}:{}: more than one line in a line", source, number);
  return true;
}

namespace {

/// Reads the first line under one delimiter. A stream of commas has points in its numbers, whatever the model's files
/// had.
StreamOpening open_with(char delimiter, const DataDescription& description, const std::string& line,
                        const std::string& source, const RowFormat& format) {
  std::vector<Field> fields;
  if (!read_line(line, delimiter, source, 1, fields)) {
    fail(ErrorCode::bad_input, "{}:1:1: the first line must be a header with the names of the columns", source);
  }
  const char usual = delimiter == ',' && description.table.delimiter != ',' ? '.' : description.table.decimal;
  const char decimal = format.decimal != 0 ? format.decimal : usual;
  return {delimiter, decimal, {fields, source, decimal, description.table.header}};
}

/// Opens a stream by its first line, under the delimiter that was given or the first of the usual ones under which
/// there are all columns that the model reads; nothing if there is no such delimiter.
std::optional<StreamOpening> opening_with_all(const DataDescription& description, const std::string& line,
                                              const std::string& source, const RowFormat& format) {
  const std::string usual = description.table.delimiter + std::string(",;\t| ");
  for (const char delimiter : format.delimiter != 0 ? std::string(1, format.delimiter) : usual) {
    try {
      StreamOpening opening = open_with(delimiter, description, line, source, format);
      const auto is_there = [&](const Column& input) { return opening.header.find(input.name).has_value(); };
      if (std::ranges::all_of(description.inputs, is_there)) return opening;
    } catch (const Error&) {
      // The model's own delimiter has the better message.
    }
  }
  return std::nullopt;
}

}  // namespace

StreamOpening open_stream(const DataDescription& description, const std::string& line, const std::string& source,
                          const RowFormat& format) {
  if (auto opening = opening_with_all(description, line, source, format)) return *std::move(opening);
  return open_with(format.delimiter != 0 ? format.delimiter : description.table.delimiter, description, line, source,
                   format);
}

StreamOpening open_columns(const DataDescription& description, const TableColumns& columns, const std::string& source) {
  return {',', '.', {columns.header(), source, '.', description.table.header}};
}

bool is_passed_over(std::string& line, const DataDescription& description, const RowFormat& format) {
  if (!is_preamble(line)) return false;
  if (!description.table.header) return true;
  const std::string names(without_comment_sign(line));
  if (opening_with_all(description, names, "", format)) {
    line = names;
    return false;
  }
  return !opening_with_all(description, line, "", format);
}

}  // namespace penstock::data
