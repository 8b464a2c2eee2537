#include <algorithm>
#include <limits>
#include <unordered_map>

#include "base/check.h"
#include "base/quote.h"
#include "penstock/data/rows.h"
#include "penstock/data_description.h"
#include "penstock/stop.h"

namespace penstock {

namespace {

/// The series of the last row; its name is empty where the model has no groups.
GroupedRows begin_series(const Rows& rows, const DataDescription& data, const GroupDescriptions& descriptions) {
  GroupedRows series;
  if (data.series.group_column.empty()) {
    series.data = data;
    return series;
  }
  const Group& group = rows.reader().group();
  series.name = group.name;
  series.trained = rows.reader().knows_group();
  if (series.trained) series.data = descriptions.of(group);
  return series;
}

/// Checks that no other row of a series follows one that has only values known in advance.
void check_order(const GroupedRows& series, const DataDescription& data, const Rows& rows) {
  if (series.to_come == 0) return;
  fail(ErrorCode::bad_input, "{}: a row with an empty {} comes before one with a value{}", rows.name(),
       data.targets.front().name, series.name.empty() ? "" : ", both of " + in_quotes(series.name));
}

}  // namespace

std::vector<GroupedRows> read_groups(Rows& rows, const DataDescription& data, const GroupReading& reading) {
  const GroupDescriptions descriptions(data);
  std::vector<GroupedRows> groups;
  std::unordered_map<std::string, std::size_t> places;
  for (auto kind = rows.next(); kind != Rows::Kind::end; kind = rows.next()) {
    if (kind == Rows::Kind::blank) continue;
    const std::string& name = data.series.group_column.empty() ? std::string() : rows.reader().group().name;
    const auto [place, first] = places.try_emplace(name, groups.size());
    if (first) groups.push_back(begin_series(rows, data, descriptions));
    GroupedRows& series = groups[place->second];
    series.features.insert(series.features.end(), rows.features().begin(), rows.features().end());
    if (rows.reader().is_to_come()) {
      ++series.to_come;
      series.dates_to_come.push_back(rows.date());
      continue;
    }
    check_order(series, data, rows);
    series.target_values.insert(series.target_values.end(), rows.target_values().begin(), rows.target_values().end());
    series.kept.push_back(rows.kept());
    series.dates.push_back(rows.date());
    series.missing.push_back(kind == Rows::Kind::missing);
    if (reading.values_of) series.values.push_back(reading.values_of(rows, kind == Rows::Kind::missing));
  }
  constexpr Index all = std::numeric_limits<Index>::max();
  for (GroupedRows& series : groups) {
    stop_if_asked();
    if (!series.trained) {
      const Index count = reading.scaled_by > 0 ? reading.scaled_by : all;
      series.data = descriptions.of(rows.reader().settle_group(series.name, series.features, count));
    }
    fill_ahead(data, series.features);
  }
  return groups;
}

}  // namespace penstock
