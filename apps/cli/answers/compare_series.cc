#include "answers/compare_series.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "terminal/units.h"

namespace penstock::cli {
namespace {

/// Numbers of the groups, the worst first; those that cannot be compared last.
std::vector<std::size_t> from_the_worst(const std::vector<double>& ratios) {
  std::vector<std::size_t> order(ratios.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto key = [&](std::size_t i) {
    return std::isnan(ratios[i]) ? std::numeric_limits<double>::max() : -ratios[i];
  };
  std::ranges::stable_sort(order, {}, key);
  return order;
}

std::vector<double> ratios_of(const std::vector<GroupScore>& groups) {
  std::vector<double> ratios;
  for (const GroupScore& group : groups) ratios.push_back(ratio_to_rivals(group));
  return ratios;
}

double mean_mase(const GroupScore& group) {
  double sum = 0.0;
  for (const ColumnScore& column : group.columns) sum += column.model.mase;
  return sum / static_cast<double>(group.columns.size());
}

/// "store 12       31.2   1.234   0.87 of drift"
std::string line_of(const GroupScore& group, double ratio, std::size_t width) {
  const bool one = group.columns.size() == 1;
  const double mase = mean_mase(group);
  const std::string compared = std::isnan(ratio) ? "-"
                               : one ? fmt::format("{:.2f} of {}", ratio, group.columns.front().best_rival().name)
                                     : fmt::format("{:.2f}", ratio);
  return fmt::format("{:<{}.{}}  {:>9}  {:>6}  {}", printable(group.group), width, width,
                     one ? short_number(group.columns.front().model.rmse) : "-",
                     mase > 0.0 ? fmt::format("{:.3f}", mase) : "-", compared);
}

}  // namespace

double ratio_to_rivals(const GroupScore& group) {
  double sum = 0.0;
  for (const ColumnScore& column : group.columns) {
    const double rival = column.best_rival().errors.rmse;
    if (!(rival > 0.0) || !(column.model.rmse > 0.0)) return std::numeric_limits<double>::quiet_NaN();
    sum += std::log(column.model.rmse / rival);
  }
  return std::exp(sum / static_cast<double>(group.columns.size()));
}

std::vector<std::string> group_lines(const std::vector<GroupScore>& groups, const std::string& heading,
                                     std::size_t most) {
  constexpr std::size_t shown_worst = 5, shown_best = 3, narrowest = 6, widest = 24;
  const std::vector<double> ratios = ratios_of(groups);
  const std::vector<std::size_t> order = from_the_worst(ratios);
  const auto better = std::ranges::count_if(ratios, [](double ratio) { return ratio < 1.0; });
  std::vector<std::string> lines = {fmt::format(
      "better than the best baseline in {} of {} {}; from the worst to the best:", better, groups.size(), heading)};
  std::size_t width = narrowest;
  for (const GroupScore& group : groups) width = std::max(width, std::min(widest, printable(group.group).size()));
  lines.push_back(fmt::format("{:<{}}  {:>9}  {:>6}  RMSE / baseline", heading, width, "RMSE", "MASE"));
  const bool all = groups.size() <= most;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (!all && i == shown_worst) {
      lines.push_back(fmt::format("... {} more; --json has all", order.size() - shown_worst - shown_best));
      i = order.size() - shown_best;
    }
    lines.push_back(line_of(groups[order[i]], ratios[order[i]], width));
  }
  return lines;
}

std::vector<std::size_t> telling_groups(const std::vector<GroupScore>& groups) {
  const std::vector<std::size_t> order = from_the_worst(ratios_of(groups));
  std::vector<std::size_t> chosen;
  for (const std::size_t place : {std::size_t{0}, order.size() / 2, order.size() - 1}) {
    if (std::ranges::find(chosen, order[place]) == chosen.end()) chosen.push_back(order[place]);
  }
  return chosen;
}

}  // namespace penstock::cli
