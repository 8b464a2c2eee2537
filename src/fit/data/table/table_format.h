#pragma once

#include <string>
#include <string_view>

#include "penstock/description/table.h"
#include "penstock/types.h"

namespace penstock::data {

class TableColumns;

/// How a table is written, once everything is decided.
struct FoundFormat {
  char delimiter = ',';
  char decimal = '.';
  bool header = true;
  Index first_line = 1;     ///< Lines that are no rows may stand in front (is_preamble()).
  std::size_t skipped = 0;  ///< Their bytes.
};

/// Returns whether a line in front of a table is none of its rows: Excel's "sep=;", or a comment that begins with '#'.
bool is_preamble(std::string_view line);
/// Returns the text of such a comment: "week co2" for "# week co2", NumPy's way to write a header.
std::string_view without_comment_sign(std::string_view line);

/// Returns whether the first lines of a file of unknown type are those of a table. They must have equally many fields
/// and, except for a header, at least one number each. If blanks separate the fields, most must be values.
bool looks_like_table(std::string_view content);

/// Completes what was given by what the first rows look like. Throws Error(invalid_argument) for a delimiter or a
/// decimal that cannot be.
FoundFormat find_format(std::string_view content, const TableFormat& given);
/// Completes what was given for a table in memory. The first rows show the decimal of its texts; numbers need none.
FoundFormat find_format(const TableColumns& columns, const TableFormat& given);

/// Returns the description of tables of this format for a model.
inline TableDescription describe_table(const FoundFormat& format, Missing missing) {
  return {format.delimiter, format.decimal, format.header, missing};
}

/// "separator ';', decimal ','; no header: the columns are called column1, column2, ...", as far as it is not what
/// everyone expects (a comma, a point and a header).
std::string describe(const FoundFormat& format);

/// "','", "tab"
std::string delimiter_name(char delimiter);

}  // namespace penstock::data
