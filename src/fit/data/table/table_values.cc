#include "data/table/table_values.h"

#include <limits>

namespace penstock::data {
namespace {

constexpr double none = std::numeric_limits<double>::quiet_NaN();

}  // namespace

void TableValues::add_missing_row(Index behind) {
  const auto row = static_cast<std::size_t>(rows()), at = static_cast<std::size_t>(behind);
  lines.push_back(lines[at]);
  files.push_back(files[at]);
  for (std::size_t i = 0; i < columns.size(); ++i) {
    columns[i].push_back(none);
    filled[i].resize(row, 0);
    filled[i].push_back(1);
  }
}

ValueReader::ValueReader(const OpenTable& table, std::vector<std::size_t> columns, Missing missing)
    : columns_(std::move(columns)), kinds_(columns_.size(), ColumnKind::unknown), refuse_(missing == Missing::refuse) {
  values_.columns.resize(columns_.size());
  values_.filled.resize(columns_.size());
  values_.sources = table.sources();
}

void ValueReader::add(const TableRows& rows, bool may_be_missing) {
  const Index row = values_.rows();
  values_.lines.push_back(rows.fields()[0].line);
  values_.files.push_back(rows.file());
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    const bool gap = (!refuse_ || may_be_missing) && rows.fields()[columns_[i]].is_missing();
    values_.columns[i].push_back(gap ? none : rows.header().number(rows.fields(), columns_[i], kinds_[i]));
    auto& filled = values_.filled[i];
    if (gap) filled.resize(static_cast<std::size_t>(row), 0);
    if (gap || !filled.empty()) filled.push_back(gap ? 1 : 0);
  }
}

}  // namespace penstock::data
