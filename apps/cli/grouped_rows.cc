#include "grouped_rows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "terminal.h"
#include "units.h"

namespace penstock::cli {

std::vector<GroupedRows> read_groups(Rows& rows, const DataDescription& data, const GroupReading& reading) {
  std::vector<GroupedRows> groups;
  std::unordered_map<std::string, std::size_t> places;
  for (auto kind = rows.next(); kind != Rows::Kind::end; kind = rows.next()) {
    if (kind == Rows::Kind::blank) continue;
    const Group& group = rows.reader().group();
    const auto [place, first] = places.try_emplace(group.name, groups.size());
    if (first) {
      GroupedRows& added = groups.emplace_back();
      added.name = group.name;
      added.trained = rows.reader().knows_group();
      if (added.trained) added.data = data.of_group(group);
    }
    GroupedRows& series = groups[place->second];
    series.features.insert(series.features.end(), rows.features().begin(), rows.features().end());
    series.kept.push_back(rows.kept());
    if (reading.values_of) series.values.push_back(reading.values_of(rows));
  }
  constexpr Index all = std::numeric_limits<Index>::max();
  for (GroupedRows& series : groups) {
    if (series.trained) continue;
    const Index count = reading.scaled_by > 0 ? reading.scaled_by : all;
    series.data = data.of_group(rows.reader().settle_group(series.name, series.features, count));
  }
  return groups;
}

void say_new_groups(const std::vector<GroupedRows>& groups, const std::string& source, Index scaled_by) {
  constexpr std::size_t shown = 6;
  std::vector<std::string> names;
  for (const GroupedRows& series : groups) {
    if (!series.trained) names.push_back(printable(series.name));
  }
  if (names.empty()) return;
  const std::size_t more = names.size() > shown ? names.size() - shown : 0;
  const std::string by = scaled_by > 0 ? fmt::format("the first {}", with_commas(scaled_by)) : "all";
  names.resize(names.size() - more);
  say(fmt::format("note: training did not see {}{}: scaled by {} of {} rows in {}\n", fmt::join(names, ", "),
                  more > 0 ? fmt::format(" and {} more", more) : "", by, names.size() + more == 1 ? "its" : "their",
                  printable(source)));
}

}  // namespace penstock::cli
