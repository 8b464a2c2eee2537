#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/table/open_table.h"
#include "penstock/description/table.h"

namespace penstock::data {

/// Columns of a table as numbers.
struct TableValues {
  std::vector<Index> lines;                       // of each row, for messages
  std::vector<std::size_t> files;                 // of each row
  std::vector<std::vector<double>> columns;       // one a column that was asked for, [rows]; empty if not used
  std::vector<std::vector<std::uint8_t>> filled;  // the same: 1 where a value was missing; empty if none was
  std::vector<std::string> sources;               // names of the files

  /// Adds a row without values, as if it stood where row `behind` does.
  void add_missing_row(Index behind);
  Index rows() const { return static_cast<Index>(lines.size()); }
  const std::string& source(Index row) const { return sources[files[row]]; }
  /// Returns whether a value was missing.
  bool is_filled(std::size_t column, Index row) const { return !filled[column].empty() && filled[column][row] != 0; }
};

/// Takes the values of chosen columns from one row after the other. Missing ones are NaN until fill_missing.
class ValueReader {
 public:
  ValueReader(const OpenTable& table, std::vector<std::size_t> columns, Missing missing);
  /// Throws Error(bad_input) for what is no number, and for missing values if they are to be refused: unless this is a
  /// row in which they `may_be_missing`, whatever else is asked for.
  void add(const TableRows& rows, bool may_be_missing = false);
  TableValues take() { return std::move(values_); }

 private:
  std::vector<std::size_t> columns_;
  std::vector<ColumnKind> kinds_;
  bool refuse_;
  TableValues values_;
};

}  // namespace penstock::data
