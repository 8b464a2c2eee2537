#pragma once

#include <string>
#include <string_view>

#include "penstock/description/table.h"

namespace penstock::data {

/// How a table is written, once everything is decided.
struct FoundFormat {
  char delimiter = ',';
  char decimal = '.';
  bool header = true;
  Index first_line = 1;     ///< Lines that are no rows may stand in front (is_preamble()).
  std::size_t skipped = 0;  ///< Their bytes.
};

/// Whether a line in front of a table is none of its rows: Excel's "sep=;", or a comment that begins with '#'.
bool is_preamble(std::string_view line);
/// What such a comment says, as where NumPy writes a header: "# week co2" is "week co2".
std::string_view without_comment_sign(std::string_view line);

/// Whether the first lines of a file whose name says nothing are those of a table: as many fields in each, of which,
/// but for a header, one at least is a number, and most are values where blanks part them.
bool looks_like_table(std::string_view content);

/// Completes what was given by what the first rows look like. Throws Error(invalid_argument) for a delimiter or a
/// decimal that cannot be.
FoundFormat find_format(std::string_view content, const TableFormat& given);

/// "separator ';', decimal ','; no header: the columns are called column1, column2, ...", as far as it is not what
/// everyone expects (a comma, a point and a header).
std::string describe(const FoundFormat& format);

/// "','", "tab"
std::string delimiter_name(char delimiter);

}  // namespace penstock::data
