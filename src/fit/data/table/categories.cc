#include "data/table/categories.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/quote.h"

namespace penstock::data {

std::vector<CategoryColumn> category_columns(const DataDescription& description, const TableHeader& header) {
  std::vector<CategoryColumn> columns;
  for (const Column& input : description.inputs) {
    if (input.feature != Feature::category || input.ahead > 0) continue;
    const auto position = header.find(input.name);
    if (!position) {
      fail(ErrorCode::bad_input, "{}:1:1: the model reads a column {}, but the header has only {}", header.source(),
           in_quotes(input.name), header.list());
    }
    if (columns.empty() || columns.back().column != *position) columns.push_back({*position, {}});
    columns.back().texts.push_back(input.category);
  }
  return columns;
}

std::vector<std::size_t> CategoryFields::add(TableHeader& header, CategoryColumn column) {
  std::vector<std::size_t> places;
  for (const std::string& text : column.texts) places.push_back(header.add_category(column.column, text));
  columns_.push_back(std::move(column));
  return places;
}

std::vector<std::size_t> CategoryFields::extend(std::vector<Field>& record) const {
  std::vector<std::size_t> unknown;
  for (const auto& [column, texts] : columns_) {
    const Field field = record[column];
    const bool missing = field.is_missing();
    bool found = missing;
    for (const std::string& text : texts) {
      const bool is_this = !missing && field.text() == text;
      found = found || is_this;
      record.push_back({is_this ? "1" : "0", field.line, field.column});
    }
    if (!found) unknown.push_back(column);
  }
  return unknown;
}

CategoryChoice category_choice(const std::vector<std::string>& words, const TableHeader& header) {
  if (words.empty() || words == std::vector<std::string>{"auto"}) return {};
  if (words == std::vector<std::string>{"none"}) return {.found = false, .named = {}};
  CategoryChoice choice;
  for (const std::string& name : words) {
    choice.named.push_back(header.column(name, "categories"));
  }
  return choice;
}

}  // namespace penstock::data
