#include "train/csv_table.h"

#include <algorithm>

#include "base/check.h"
#include "base/quote.h"
#include "io/read_file.h"
#include "train/dataset.h"

namespace penstock::data {
namespace {

CsvHeader read_header(const std::string& content, char delimiter, const std::string& path) {
  std::vector<CsvField> fields;
  if (!CsvReader(content, delimiter, path).next(fields)) {
    fail(ErrorCode::bad_input, "{}: the file is empty; it must start with the names of its columns", path);
  }
  return CsvHeader(fields, path);
}

}  // namespace

CsvTable::CsvTable(const std::string& path, char delimiter)
    : content_(io::read_file(path, largest_file)),
      delimiter_(delimiter),
      header_(read_header(content_, delimiter, path)) {}

CsvReader CsvTable::rows() const {
  CsvReader reader(content_, delimiter_, header_.source());
  std::vector<CsvField> names;
  reader.next(names);
  return reader;
}

std::size_t CsvTable::column(const std::string& name, const char* argument) const {
  const auto found = header_.find(name);
  require(found.has_value(), "{}: {} has no column {}, only {}", argument, header_.source(), in_quotes(name),
          header_.list());
  return *found;
}

std::vector<std::size_t> CsvTable::columns(const std::vector<std::string>& names, const char* argument) const {
  std::vector<std::size_t> columns;
  for (const auto& name : names) {
    const std::size_t found = column(name, argument);
    require(std::find(columns.begin(), columns.end(), found) == columns.end(), "{}: column {} is there twice", argument,
            in_quotes(name));
    columns.push_back(found);
  }
  return columns;
}

std::vector<std::size_t> CsvTable::numeric_columns(const std::vector<std::size_t>& excluded) const {
  enum class Kind { unknown, number, text };
  std::vector<Kind> kinds(header_.names().size(), Kind::unknown);
  for (const std::size_t column : excluded) kinds[column] = Kind::text;
  CsvReader reader = rows();
  std::vector<CsvField> record;
  if (!rows().next(record)) {
    fail(ErrorCode::bad_input, "{}: no rows behind the header", header_.source());
  }
  while (std::find(kinds.begin(), kinds.end(), Kind::unknown) != kinds.end() && reader.next(record)) {
    header_.check_width(record);
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      if (kinds[i] != Kind::unknown || is_missing(record[i].text)) continue;
      kinds[i] = looks_numeric(record[i].text) ? Kind::number : Kind::text;
    }
  }
  std::vector<std::size_t> columns;
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    if (kinds[i] == Kind::number) columns.push_back(i);
  }
  if (columns.empty()) {
    fail(ErrorCode::bad_input, "{}: no numeric column to use as input among {}", header_.source(), header_.list());
  }
  return columns;
}

}  // namespace penstock::data
