#include "data/series/series_columns.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/lower_case.h"
#include "base/quote.h"
#include "data/series/series_plan.h"
#include "data/table/open_table.h"

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

/// Returns those of `columns` that say a part of a date: they are called "month", "day", "hour", ... and hold nothing
/// but whole numbers as such parts have.
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

/// Which columns a table offers; of those that were asked for, whether they are categories.
OpenTable::Choice offered_columns(const OpenTable& table, const SeriesOptions& options) {
  ColumnQuestion question{.categories = category_choice(options.categories, table.header())};
  if (!options.group.empty()) {
    question.series = table.column(options.group, "group");
    question.excluded.push_back(*question.series);
  }
  question.only = table.columns(options.inputs, "inputs");
  auto& named = options.inputs.empty() ? question.counters : question.only;
  for (const std::string& known : options.known) named.push_back(table.column(known, "known"));
  for (std::size_t i = 0; i < options.targets.size() && options.inputs.empty(); ++i) {
    question.counters.push_back(table.column(options.targets[i], "targets"));
  }
  return table.choose_columns(question);
}

bool contains(const std::vector<std::size_t>& columns, std::size_t column) {
  return std::ranges::find(columns, column) != columns.end();
}

/// Columns made from the calendar are not forecast, unless no others are left.
void leave_out_parts(const OpenTable& table, SeriesColumns& columns) {
  std::vector<std::size_t> parts = calendar_parts(table, columns.targets);
  if (parts.size() == columns.targets.size()) return;
  std::erase_if(columns.targets, [&](std::size_t column) { return contains(parts, column); });
  columns.parts = std::move(parts);
}

}  // namespace

SeriesColumns find_columns(OpenTable& table, const SeriesOptions& options, OpenTable::Choice& choice,
                           const DataDescription* origin) {
  if (origin == nullptr) choice = offered_columns(table, options);
  if (origin != nullptr) choice.categories = category_columns(*origin, table.header());
  SeriesColumns columns;
  columns.inputs =
      options.inputs.empty() ? choice.columns : table.columns(options.inputs, origin ? "the model's inputs" : "inputs");
  columns.known = table.columns(options.known, "known");
  for (const std::size_t known : columns.known) {
    if (!contains(columns.inputs, known)) columns.inputs.push_back(known);
  }
  columns.targets = options.targets.empty()
                        ? columns.inputs
                        : table.columns(options.targets, origin ? "the model's targets" : "targets");
  for (const CategoryColumn& category : choice.categories) {
    const bool is_known = contains(columns.known, category.column);
    std::erase(columns.inputs, category.column);
    std::erase(columns.known, category.column);
    if (options.targets.empty()) std::erase(columns.targets, category.column);
    for (const std::size_t place : table.add_categories(category)) {
      columns.inputs.push_back(place);
      if (is_known) columns.known.push_back(place);
    }
  }
  const auto is_known = [&](std::size_t column) { return contains(columns.known, column); };
  if (options.targets.empty()) {
    std::erase_if(columns.targets, is_known);
    leave_out_parts(table, columns);
  }
  require_about(!columns.targets.empty(), options.known.empty() ? "inputs" : "known",
                ": no column of {} is left to be forecast", table.header().source());
  const auto both = std::ranges::find_if(columns.targets, is_known);
  require_about(both == columns.targets.end(), "known", ": column {} is forecast and therefore not known in advance",
                in_quotes(both == columns.targets.end() ? "" : table.header().names()[*both]));
  return columns;
}

void drop_unseen_categories(const OpenTable& table, const SeriesTable& series, SeriesColumns& columns) {
  const auto is_unseen = [&](std::size_t place) {
    const auto* const category = table.header().category(place);
    if (category == nullptr) return false;
    for (const auto& values : values_of(series, place, SeriesPart::training, false)) {
      if (std::ranges::find(values, 1.0) != values.end()) return false;
    }
    return true;
  };
  const auto dropped = std::stable_partition(columns.inputs.begin(), columns.inputs.end(), std::not_fn(is_unseen));
  for (auto place = dropped; place != columns.inputs.end(); ++place) std::erase(columns.known, *place);
  columns.inputs.erase(dropped, columns.inputs.end());
}

}  // namespace penstock::data
