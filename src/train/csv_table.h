#pragma once

#include <string>
#include <vector>

#include "train/csv.h"

namespace penstock::data {

/// A CSV file in memory, with its header read.
class CsvTable {
 public:
  /// Throws Error(io_failure) if the file cannot be read, Error(bad_input) if it is empty or its header is not sound.
  CsvTable(const std::string& path, char delimiter);

  const CsvHeader& header() const { return header_; }
  /// A reader that stands at the first row.
  CsvReader rows() const;
  /// Where a column stands. Throws Error(invalid_argument) that lists the columns there are; `argument` is who asks.
  std::size_t column(const std::string& name, const char* argument) const;
  /// Where several columns stand, each asked for once.
  std::vector<std::size_t> columns(const std::vector<std::string>& names, const char* argument) const;
  /// All columns whose first value that is not missing reads as a number, but for the excluded ones. Later values do
  /// not count: one bad cell must be an error, not the end of a column. Throws Error(bad_input) if there are none.
  std::vector<std::size_t> numeric_columns(const std::vector<std::size_t>& excluded) const;

 private:
  std::string content_;
  char delimiter_;
  CsvHeader header_;
};

}  // namespace penstock::data
