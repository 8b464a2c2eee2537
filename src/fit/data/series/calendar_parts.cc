#include "data/series/calendar_parts.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/lower_case.h"

namespace penstock::data {
namespace {

struct CalendarPart {
  std::string_view name;
  double least, most;
};

constexpr CalendarPart known_parts[] = {
    {"year", 1000, 2999},  {"quarter", 1, 4},     {"month", 1, 12},      {"mnth", 1, 12},
    {"week", 0, 53},       {"weekofyear", 0, 53}, {"dayofyear", 1, 366}, {"day", 1, 31},
    {"dayofmonth", 1, 31}, {"weekday", 0, 7},     {"dayofweek", 0, 7},   {"hour", 0, 24},
    {"hr", 0, 24},         {"hourofday", 0, 24},  {"minute", 0, 59},     {"second", 0, 59},
};

const CalendarPart* part_of(const std::string& column) {
  std::string name = lower_case(column);
  std::erase_if(name, [](char c) { return c == '_' || c == ' ' || c == '-'; });
  const auto* const found = std::ranges::find(known_parts, name, &CalendarPart::name);
  return found == std::end(known_parts) ? nullptr : found;
}

}  // namespace

std::vector<std::size_t> calendar_parts(const OpenTable& table, const std::vector<std::size_t>& columns) {
  std::vector<std::size_t> found;
  for (const std::size_t column : columns) {
    if (table.header().category(column) == nullptr && part_of(table.header().names()[column]) != nullptr) {
      found.push_back(column);
    }
  }
  if (found.empty()) return found;
  for (auto rows = table.rows(); rows.next() && !found.empty();) {
    std::erase_if(found, [&](std::size_t column) {
      const Field& field = rows.fields()[column];
      const CalendarPart& part = *part_of(table.header().names()[column]);
      double value = 0.0;
      const bool fits = field.number(table.format().decimal, value) == std::errc{} && value == std::floor(value) &&
                        value >= part.least && value <= part.most;
      return !fits && !field.is_missing();
    });
  }
  return found;
}

}  // namespace penstock::data
