#include "data/series/long_table.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <unordered_map>

#include "base/check.h"
#include "base/lower_case.h"
#include "base/quote.h"
#include "data/table/dates.h"

namespace penstock::data {
namespace {

/// The values of a column as numbers: equal ones have the same.
struct Keys {
  std::size_t column = 0;
  std::vector<std::size_t> rows = {};    ///< Number of the value of each row.
  std::vector<std::string> values = {};  ///< In the order in which they come.
  std::unordered_map<std::string, std::size_t> numbers = {};
};

constexpr double least_repeats = 1.3;       // rows of a date, on average
constexpr std::size_t shortest_series = 3;  // of a series, on average
constexpr std::size_t most_columns = 8;     // of which pairs are tried

bool has_word(const std::string& name, std::initializer_list<const char*> words) {
  return std::ranges::any_of(words, [&](const char* word) { return name.find(word) != name.npos; });
}

/// Returns whether a column may say when in a day, a month or a year a row was: its values ascend within a date.
bool may_say_when(const std::string& column) {
  const std::string name = lower_case(column);
  return may_name_dates(name) || has_word(name, {"hour", "minute", "second", "quarter", "shift", "slot", "half",
                                                 "session", "am_pm", "ampm", "season"});
}

/// Numbers tell series apart only where the name of their column says so.
bool may_name_series(const std::string& column) {
  const std::string name = lower_case(column);
  const bool number = name == "id" || name.ends_with("_id") || name.ends_with(" id") || name.ends_with("no");
  return number || column.ends_with("Id") || column.ends_with("ID") ||
         has_word(name, {"store",   "shop",    "item",     "sku",       "product", "sensor",   "series",
                         "station", "site",    "meter",    "device",    "region",  "customer", "branch",
                         "outlet",  "machine", "location", "household", "symbol",  "ticker"});
}

/// Columns that may tell series apart: of few values, and not of dates.
std::vector<Keys> key_columns(const OpenTable& table, std::size_t date_column) {
  const auto& names = table.header().names();
  std::vector<Keys> all;
  auto rows = table.rows();
  std::size_t count = 0;
  while (rows.next()) {
    const auto& fields = rows.fields();
    if (count++ == 0) {
      for (std::size_t c = 0; c < table.header().width() && all.size() < most_columns; ++c) {
        const bool number = table.header().looks_numeric(fields[c]);
        const bool taken = c == date_column || may_say_when(names[c]) || parse_date(fields[c].text());
        if (!taken && (!number || may_name_series(names[c]))) all.push_back({.column = c});
      }
    }
    for (Keys& keys : all) {
      const std::string& text = fields[keys.column].text();
      const auto [found, fresh] = keys.numbers.try_emplace(text, keys.values.size());
      if (fresh) keys.values.push_back(text);
      keys.rows.push_back(found->second);
    }
  }
  std::erase_if(
      all, [&](const Keys& keys) { return keys.values.size() < 2 || keys.values.size() * shortest_series > count; });
  return all;
}

struct NamedSeries {
  std::size_t count = 0;
  bool sorted = true;  ///< The dates of each rise.
};

/// The series that these keys name; nothing unless each has every date once at most.
std::optional<NamedSeries> find_series(const std::vector<std::size_t>& keys, const std::vector<double>& seconds) {
  std::unordered_map<std::size_t, std::vector<double>> dates;
  for (std::size_t row = 0; row < seconds.size(); ++row) {
    if (!std::isnan(seconds[row])) dates[keys[row]].push_back(seconds[row]);
  }
  NamedSeries found{.count = dates.size()};
  for (auto& [key, of_one] : dates) {
    found.sorted = found.sorted && std::ranges::is_sorted(of_one);
    std::ranges::sort(of_one);
    if (std::ranges::adjacent_find(of_one) != of_one.end()) return std::nullopt;
  }
  const bool enough = found.count > 1 && found.count * shortest_series <= seconds.size();
  return enough ? std::optional(found) : std::nullopt;
}

/// Returns the advice to sort first, if the dates of the series do not rise.
std::string sort_first(const NamedSeries& series, const std::string& dates) {
  return series.sorted ? "" : fmt::format("sort the rows by {}; then ", dates);
}

bool dates_repeat(std::vector<double> seconds) {
  std::erase_if(seconds, [](double date) { return std::isnan(date); });
  const auto rows = static_cast<double>(seconds.size());
  std::ranges::sort(seconds);
  const auto dates = std::unique(seconds.begin(), seconds.end()) - seconds.begin();
  return rows > 0.0 && rows >= least_repeats * static_cast<double>(dates);
}

}  // namespace

void refuse_long_table(const OpenTable& table, std::size_t date_column, const std::vector<double>& seconds) {
  if (seconds.empty() || !dates_repeat(seconds)) return;
  const std::vector<Keys> columns = key_columns(table, date_column);
  const auto& names = table.header().names();
  const std::string path = table.header().source(), dates = in_quotes(names[date_column]);
  for (const Keys& keys : columns) {
    const auto series = find_series(keys.rows, seconds);
    if (!series) continue;
    const std::string& name = names[keys.column];
    fail_with(ErrorCode::bad_input,
              {sort_first(*series, dates), the_option("group", name), " reads each by itself, ",
               the_option("calendar", "none"), " all rows as one series"},
              "{}: the table holds {} series: the dates of column {} repeat for each {}, such as {} and {}", path,
              series->count, dates, in_quotes(name), in_quotes(keys.values[0]), in_quotes(keys.values[1]));
  }
  for (std::size_t i = 0; i < columns.size(); ++i) {
    for (std::size_t j = i + 1; j < columns.size(); ++j) {
      std::vector<std::size_t> both(columns[i].rows);
      for (std::size_t row = 0; row < both.size(); ++row) {
        both[row] = both[row] * columns[j].values.size() + columns[j].rows[row];
      }
      const auto series = find_series(both, seconds);
      if (!series) continue;
      fail_with(ErrorCode::bad_input,
                {"put both into one column and name it by ", the_option("group"),
                 ", or read all rows as one series by ", the_option("calendar", "none")},
                "{}: the table holds {} series: the dates of column {} repeat for each {} of each {}", path,
                series->count, dates, in_quotes(names[columns[j].column]), in_quotes(names[columns[i].column]));
    }
  }
}

}  // namespace penstock::data
