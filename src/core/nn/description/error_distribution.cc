#include "penstock/description/error_distribution.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace penstock {

void ErrorDistribution::check(std::span<const double> quantile_levels) const {
  require_about(!empty(), "quantiles",
                ": the model does not know the errors of its forecasts: train it with held-out rows");
  for (const double level : quantile_levels) {
    if (level >= levels.front() && level <= levels.back()) continue;
    const bool percent = level > 1.0 && level <= 100.0;
    fail_argument({.argument = "quantiles",
                   .value = fmt::format("{:g}", level),
                   .allowed = fmt::format("{:g} to {:g}", levels.front(), levels.back()),
                   .remedy = percent ? fmt::format("{:g} % is {:g}", level, level / 100.0) : ""},
                  fmt::format("{:g}", level));
  }
}

double ErrorDistribution::error(double level, Index output) const {
  require(!empty(), "the distribution of these forecasts is not known");
  require_argument(level >= levels.front() && level <= levels.back(), "level", level, "{} to {}", levels.front(),
                   levels.back());
  const std::size_t targets = quantiles.size() / levels.size();
  const std::size_t target = static_cast<std::size_t>(output) % targets;
  const auto next = static_cast<std::size_t>(std::ranges::lower_bound(levels, level) - levels.begin());
  const double above = quantiles[next * targets + target];
  if (levels[next] == level) return above * scales[static_cast<std::size_t>(output)];
  const double below = quantiles[(next - 1) * targets + target];
  const double share = (level - levels[next - 1]) / (levels[next] - levels[next - 1]);
  return (below + share * (above - below)) * scales[static_cast<std::size_t>(output)];
}

double ErrorDistribution::quantile(double level, Index output, const Column& column, double normalised) const {
  const double e = error(level, output), raw = column.raw(normalised);
  if (relative[static_cast<std::size_t>(output) % relative.size()] == 0)
    return column.raw(column.bounded(normalised) + e);
  return raw > 0.0 ? raw * std::exp(e) : raw;
}

double ErrorDistribution::error_between(double value, double forecast, std::size_t target, const Column& column) const {
  if (relative[target] == 0) return column.normal(value) - column.bounded(forecast);
  const double raw_forecast = column.raw(forecast);
  return value > 0.0 && raw_forecast > 0.0 ? std::log(value / raw_forecast) : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace penstock
