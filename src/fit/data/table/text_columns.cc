#include "data/table/text_columns.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <vector>

#include "base/lower_case.h"
#include "data/table/dates.h"
#include "penstock/error.h"

namespace penstock::data {
namespace {

constexpr std::array<std::string_view, 10> label_names = {"label", "labels", "class", "category",  "target",
                                                          "topic", "intent", "y",     "sentiment", "language"};
constexpr Index rows_to_look_at = 1000;
constexpr double least_length = 12.0;  // bytes, on average; shorter ones are names and codes
constexpr std::size_t most_labels = 200;

/// Statistics of a column's first rows.
struct Seen {
  std::set<std::string> different;
  Index count = 0, bytes = 0, prose = 0, numbers = 0, dates = 0;

  void look(const Field& field, const TableHeader& header) {
    const std::string& text = field.text();
    if (text.empty()) return;
    ++count;
    bytes += static_cast<Index>(text.size());
    different.insert(text);
    const bool number = header.looks_numeric(field);
    numbers += number ? 1 : 0;
    dates += looks_like_date(text) && !number ? 1 : 0;
    // Several words, or a script that may have none.
    prose += std::ranges::any_of(text, [](unsigned char c) { return c == ' ' || c >= 0x80; }) ? 1 : 0;
  }
  double mean_length() const { return count == 0 ? 0.0 : static_cast<double>(bytes) / static_cast<double>(count); }
  bool holds_dates() const { return count > 0 && 2 * dates > count; }
  bool holds_numbers() const { return count > 0 && 2 * numbers >= count; }
  bool holds_texts() const {
    return count > 0 && mean_length() >= least_length && 2 * static_cast<Index>(different.size()) > count &&
           2 * prose > count && !holds_dates() && 2 * numbers < count;
  }
  bool holds_labels() const {
    return different.size() >= 2 && different.size() <= most_labels &&
           2 * static_cast<Index>(different.size()) <= count;
  }
};

std::vector<Seen> look_at(const OpenTable& table) {
  std::vector<Seen> columns(table.header().width());
  TableRows rows = table.rows();
  try {
    for (Index row = 0; row < rows_to_look_at && rows.next(); ++row) {
      for (std::size_t i = 0; i < columns.size(); ++i) columns[i].look(rows.fields()[i], table.header());
    }
  } catch (const Error&) {
    // The beginning of a file may end within a quoted field; other errors are reported when all of it is read.
  }
  return columns;
}

/// The first column for which `suits` holds among those that are called as labels usually are.
template <class Suits>
std::optional<std::size_t> named_label(const TableHeader& header, const Suits& suits) {
  for (const std::string_view name : label_names) {
    for (std::size_t i = 0; i < header.width(); ++i) {
      if (lower_case(header.names()[i]) == name && suits(i)) return i;
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<TextColumns> find_text_columns(const OpenTable& table, const std::string& text,
                                             const std::string& label) {
  const std::vector<Seen> columns = look_at(table);
  const auto found_label = label.empty()
                               ? named_label(table.header(), [&](std::size_t i) { return columns[i].holds_labels(); })
                               : table.header().find(label);
  if (!found_label) return std::nullopt;
  if (!text.empty()) {
    const auto named = table.header().find(text);
    if (!named) return std::nullopt;
    return TextColumns{*named, *found_label};
  }
  bool others = false;  // to learn from than texts
  for (std::size_t i = 0; i < columns.size(); ++i) others = others || (i != *found_label && columns[i].holds_numbers());
  const auto is_named = [&](std::size_t i) { return !others && lower_case(table.header().names()[i]) == "text"; };
  std::optional<std::size_t> longest;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (columns[i].holds_dates()) return std::nullopt;  // rows that follow each other in time
    if (i == *found_label || columns[i].count == 0 || !(columns[i].holds_texts() || is_named(i))) continue;
    if (!longest || columns[i].mean_length() > columns[*longest].mean_length()) longest = i;
  }
  if (!longest) return std::nullopt;
  return TextColumns{*longest, *found_label};
}

std::optional<std::size_t> usual_label(const TableHeader& header) {
  return named_label(header, [](std::size_t) { return true; });
}

}  // namespace penstock::data
