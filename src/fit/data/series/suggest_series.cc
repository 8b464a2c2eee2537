#include <fmt/ranges.h>

#include <array>
#include <utility>

#include "base/check.h"
#include "base/quote.h"
#include "penstock/data/series.h"
#include "penstock/description/row_dates.h"

namespace penstock {
namespace {

/// Nothing for a word that is no cycle.
std::optional<Cycle> cycle_of(const std::string& word) {
  constexpr std::array names = {std::pair("day", Cycle::day), std::pair("week", Cycle::week),
                                std::pair("year", Cycle::year)};
  for (const auto& [name, cycle] : names) {
    if (word == name) return cycle;
  }
  return std::nullopt;
}

CalendarOptions calendar_of(const std::vector<std::string>& words, const std::string& column) {
  CalendarOptions calendar{.read = true, .column = column};
  if (words.empty() || words == std::vector<std::string>{"auto"}) return calendar;
  calendar.read = words != std::vector<std::string>{"none"};
  if (!calendar.read) return calendar;
  for (const std::string& word : words) {
    const auto cycle = cycle_of(word);
    require_argument(cycle.has_value(), "calendar", fmt::format("{}", fmt::join(words, ",")),
                     "auto, none, or some of day,week,year");
    calendar.cycles.push_back(*cycle);
  }
  return calendar;
}

}  // namespace

SeriesOptions suggest_series(const SeriesChoices& said, SeriesOptions options) {
  options.from_last = said.from_last.value_or(true);
  options.autoregression = said.autoregression.value_or(options.from_last);
  options.transform = said.transform.value_or(Transform::automatic);
  options.calendar = calendar_of(said.calendar, said.date_column);
  // Who does not want dates to be read does not need them later on.
  const Irregular usual = options.calendar.read ? Irregular::automatic : Irregular::ignore;
  options.irregular = said.irregular.value_or(usual);
  return options;
}

}  // namespace penstock
