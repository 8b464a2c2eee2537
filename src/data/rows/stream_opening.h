#pragma once

#include <string>
#include <vector>

#include "data/table/csv.h"
#include "data/table/table_columns.h"
#include "penstock/data/row_reader.h"
#include "penstock/data_description.h"

namespace penstock::data {

/// The only record of a line; false for a blank one. Text that is none in UTF-8 is taken for Windows-1252.
bool read_line(const std::string& line, char delimiter, const std::string& source, Index number,
               std::vector<Field>& fields);

/// Whether a line in front of a stream is no row and no header that has all columns which the model reads
/// (is_preamble()). Where a comment holds such a header, `line` becomes that.
bool is_passed_over(std::string& line, const DataDescription& description, const RowFormat& format);

/// How a stream of rows is written, and the names of its columns.
struct StreamOpening {
  char delimiter, decimal;
  CsvHeader header;
};

/// From its first line: as `format` says it, otherwise as the model's files were, otherwise with the usual separator
/// under which the line has all columns that the model reads.
StreamOpening open_stream(const DataDescription& description, const std::string& line, const std::string& source,
                          const RowFormat& format);

/// From the names of columns.
StreamOpening open_columns(const DataDescription& description, const TableColumns& columns, const std::string& source);

}  // namespace penstock::data
