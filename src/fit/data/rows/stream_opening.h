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

/// Returns whether a line in front of a stream is neither a row nor a header with all columns that the model reads
/// (is_preamble()). If a comment holds such a header, replaces `line` by it.
bool is_passed_over(std::string& line, const DataDescription& description, const RowFormat& format);

/// How a stream of rows is written, and the names of its columns.
struct StreamOpening {
  char delimiter, decimal;
  TableHeader header;
};

/// Opens a stream by its first line: in the given `format`, else in that of the model's files, else with the usual
/// separator under which the line has all columns that the model reads.
StreamOpening open_stream(const DataDescription& description, const std::string& line, const std::string& source,
                          const RowFormat& format);

/// Opens a table in memory by the names of its columns.
StreamOpening open_columns(const DataDescription& description, const TableColumns& columns, const std::string& source);

}  // namespace penstock::data
