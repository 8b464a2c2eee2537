#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "forecast/linear/linear_forecast.h"

namespace penstock::training {

/// Rows of one series to forecast from, first to last; none if the last stands before the first.
struct Origins {
  std::size_t series;
  Index first, last;
};

inline Index count_of(const std::vector<Origins>& all) {
  Index count = 0;
  for (const Origins& each : all) count += std::max<Index>(0, each.last - each.first + 1);
  return count;
}

/// Visits every `stride`th of the rows, counted through all series.
template <class Visit>
void visit(const std::vector<Origins>& all, Index stride, const Visit& visitor) {
  Index skip = 0;
  for (const Origins& each : all) {
    Index row = each.first + skip;
    for (; row <= each.last; row += stride) visitor(each.series, row);
    if (each.last >= each.first) skip = row - each.last - 1;
  }
}

inline std::vector<std::span<const double>> spans_of(const std::vector<std::vector<double>>& z) {
  return {z.begin(), z.end()};
}

inline Index rows_of(ManySeries z) {
  Index rows = 0;
  for (const std::span<const double> each : z) rows += static_cast<Index>(each.size());
  return rows;
}

inline bool all_equal(ManySeries z) {
  return std::ranges::all_of(z, [](std::span<const double> each) {
    return std::ranges::all_of(each, [&](double value) { return value == each.front(); });
  });
}

/// Rows that nine in ten of the series have.
inline Index common_rows(ManySeries z) {
  std::vector<std::size_t> sizes;
  for (const std::span<const double> each : z) sizes.push_back(each.size());
  const auto tenth = sizes.begin() + static_cast<std::ptrdiff_t>(sizes.size() / 10);
  std::ranges::nth_element(sizes, tenth);
  return static_cast<Index>(*tenth);
}

inline std::vector<std::span<const double>> beginnings_of(ManySeries z, double share) {
  std::vector<std::span<const double>> result;
  for (const std::span<const double> each : z) {
    result.push_back(each.first(static_cast<std::size_t>(share * static_cast<double>(each.size()))));
  }
  return result;
}

}  // namespace penstock::training
