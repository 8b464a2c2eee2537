#include "grouped_rows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "penstock/error.h"
#include "terminal.h"
#include "units.h"

namespace penstock::cli {

namespace {

/// The series of the last row; its name is empty where the model has no groups.
GroupedRows begin_series(const Rows& rows, const DataDescription& data) {
  GroupedRows series;
  series.data = data;
  if (data.group_column.empty()) return series;
  const Group& group = rows.reader().group();
  series.name = group.name;
  series.trained = rows.reader().knows_group();
  if (series.trained) series.data = data.of_group(group);
  return series;
}

/// Behind a row that only says what is known in advance no other may follow in its series.
void check_order(const GroupedRows& series, const DataDescription& data, const Rows& rows) {
  if (series.to_come == 0) return;
  throw Error(ErrorCode::bad_input, fmt::format("{}: a row in which {} is empty stands before one in which it is not{}",
                                                rows.name(), printable(data.targets.front().name),
                                                series.name.empty() ? "" : ", both of " + printable(series.name)));
}

}  // namespace

std::vector<GroupedRows> read_groups(Rows& rows, const DataDescription& data, const GroupReading& reading) {
  std::vector<GroupedRows> groups;
  std::unordered_map<std::string, std::size_t> places;
  for (auto kind = rows.next(); kind != Rows::Kind::end; kind = rows.next()) {
    if (kind == Rows::Kind::blank) continue;
    const std::string& name = data.group_column.empty() ? std::string() : rows.reader().group().name;
    const auto [place, first] = places.try_emplace(name, groups.size());
    if (first) groups.push_back(begin_series(rows, data));
    GroupedRows& series = groups[place->second];
    series.features.insert(series.features.end(), rows.features().begin(), rows.features().end());
    if (rows.reader().is_to_come()) {
      ++series.to_come;
      continue;
    }
    check_order(series, data, rows);
    series.known.insert(series.known.end(), rows.known_targets().begin(), rows.known_targets().end());
    series.kept.push_back(rows.kept());
    series.dates.push_back(rows.date());
    series.missing.push_back(kind == Rows::Kind::missing);
    if (reading.values_of) series.values.push_back(reading.values_of(rows, kind == Rows::Kind::missing));
  }
  constexpr Index all = std::numeric_limits<Index>::max();
  for (GroupedRows& series : groups) {
    if (!series.trained) {
      const Index count = reading.scaled_by > 0 ? reading.scaled_by : all;
      series.data = data.of_group(rows.reader().settle_group(series.name, series.features, count));
    }
    fill_ahead(data, series.features);
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
