#include "data/table/fill_missing.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "base/check.h"
#include "base/plural.h"
#include "base/quote.h"

namespace penstock::data {
namespace {

constexpr double unknown = std::numeric_limits<double>::quiet_NaN();

double mean_of_known(const std::vector<double>& column) {
  double sum = 0.0, count = 0.0;
  for (const double value : column) {
    if (std::isnan(value)) continue;
    sum += value;
    ++count;
  }
  return count > 0.0 ? sum / count : unknown;
}

/// Fills values[first, last) between two known ones; NaN stands for one that is not there.
void fill_gap(std::span<double> values, std::size_t first, std::size_t last, double before, double after,
              Missing missing) {
  const bool line = missing == Missing::interpolate && !std::isnan(before) && !std::isnan(after);
  const auto steps = static_cast<double>(last - first + 1);
  for (std::size_t i = first; i < last; ++i) {
    const double part = static_cast<double>(i - first + 1) / steps;
    values[i] = line ? before + (after - before) * part : std::isnan(before) ? after : before;
  }
}

void fill_segment(std::span<double> values, double mean, Missing missing) {
  double before = unknown;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isnan(values[i])) {
      before = values[i];
      continue;
    }
    std::size_t end = i;
    while (end < values.size() && std::isnan(values[end])) ++end;
    const double after = end < values.size() ? values[end] : unknown;
    fill_gap(values, i, end, before, std::isnan(before) && std::isnan(after) ? mean : after, missing);
    i = end - 1;
    before = values[i];
  }
}

}  // namespace

void refuse_empty_columns(const TableValues& values, const std::vector<std::string>& names) {
  for (std::size_t i = 0; i < values.columns.size(); ++i) {
    if (values.filled[i].empty() || !std::isnan(mean_of_known(values.columns[i]))) continue;
    fail(ErrorCode::bad_input, "{}: column {} has no values", values.sources.front(), in_quotes(names[i]));
  }
}

void fill_missing(TableValues& values, const std::vector<Index>& begins, Missing missing,
                  const std::vector<std::string>& names) {
  refuse_empty_columns(values, names);
  for (std::size_t i = 0; i < values.columns.size(); ++i) {
    if (values.filled[i].empty()) continue;
    std::vector<double>& column = values.columns[i];
    const double mean = mean_of_known(column);
    for (std::size_t s = 0; s < begins.size(); ++s) {
      const auto begin = static_cast<std::size_t>(begins[s]);
      const std::size_t end = s + 1 < begins.size() ? static_cast<std::size_t>(begins[s + 1]) : column.size();
      fill_segment(std::span(column).subspan(begin, end - begin), mean, missing);
    }
  }
}

std::string describe_filled(const TableValues& values, Missing missing) {
  Index count = 0;
  for (const auto& column : values.filled) count += std::ranges::count(column, 1);
  if (count == 0) return {};
  const char* how = missing == Missing::interpolate ? "interpolated"
                    : missing == Missing::mask      ? "replaced by the last one, and left out of the loss and scores"
                                                    : "replaced by the last one";
  return fmt::format("{} {}", counted(count, "missing value"), how);
}

}  // namespace penstock::data
