#pragma once

#include <string>
#include <string_view>

#include "penstock/data.h"

namespace penstock::data {

/// How a table is written, once everything is decided.
struct FoundFormat {
  char delimiter = ',';
  char decimal = '.';
  bool header = true;
  Index first_line = 1;     ///< 2 where Excel's "sep=;" stands in front.
  std::size_t skipped = 0;  ///< Bytes of that line.
};

/// Completes what was given by what the first rows look like. Throws Error(invalid_argument) for a delimiter or a
/// decimal that cannot be.
FoundFormat find_format(std::string_view content, const TableFormat& given);

/// "separator ';', decimal ','; no header: the columns are called column1, column2, ...", as far as it is not what
/// everyone expects (a comma, a point and a header).
std::string describe(const FoundFormat& format);

/// "','", "tab"
std::string delimiter_name(char delimiter);

}  // namespace penstock::data
