#include <algorithm>
#include <cmath>
#include <vector>

#include "forecast/linear/season.h"

namespace penstock {

namespace {

constexpr Index most_season_rows = 20000;  // the latest ones, which say enough; of many series, a share of each
constexpr Index longest_season = 400;
constexpr double seasons_needed = 2.5;
constexpr double seasons_needed_of_many = 2.0;  // series, which agree on it
constexpr Index multiples = 3;                  // of a distance: a season is alike at all of them
constexpr double least_alike = 0.3;             // correlation that a season must have ...
constexpr double least_deviations = 3.0;        // ... and how many times that of noise
// The shortest distance that is nearly as alike as the best is the season; the best may be a multiple of it.
constexpr double nearly_as_alike = 0.75;

/// Returns the residuals of values about a straight line; empty if they are only rounding errors.
std::vector<double> without_line(std::vector<double> values) {
  const auto n = static_cast<double>(values.size());
  const double middle = (n - 1.0) / 2.0;
  double mean = 0.0, slope = 0.0, spread = 0.0, largest = 0.0;
  for (const double value : values) mean += value / n;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double place = static_cast<double>(i) - middle;
    slope += place * (values[i] - mean);
    spread += place * place;
    largest = std::max(largest, std::abs(values[i]));
  }
  slope /= std::max(spread, 1.0);
  double squares = 0.0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] -= mean + slope * (static_cast<double>(i) - middle);
    squares += values[i] * values[i];
  }
  if (!(std::sqrt(squares / n) > 1e-9 * largest)) values.clear();
  return values;
}

using Changes = std::vector<std::vector<double>>;  // of each series

/// Correlation of series with themselves `lag` rows before.
double correlation(const Changes& series, Index lag) {
  double product = 0.0, now = 0.0, then = 0.0;
  for (const std::vector<double>& x : series) {
    const auto rows = static_cast<Index>(x.size());
    for (Index i = lag; i < rows; ++i) {
      product += x[i] * x[i - lag];
      now += x[i] * x[i];
      then += x[i - lag] * x[i - lag];
    }
  }
  return now > 0.0 && then > 0.0 ? product / std::sqrt(now * then) : 0.0;
}

/// Changes over `width` rows, without their trend.
Changes changes_over(Index width, std::span<const std::span<const double>> series) {
  Changes all;
  for (const std::span<const double> values : series) {
    std::vector<double> changes;
    for (std::size_t i = static_cast<std::size_t>(width); i < values.size(); ++i) {
      changes.push_back(values[i] - values[i - static_cast<std::size_t>(width)]);
    }
    all.push_back(without_line(std::move(changes)));
  }
  return all;
}

/// Pairs of rows so far apart that there are.
Index pairs(const Changes& series, Index lag) {
  Index count = 0;
  for (const std::vector<double>& x : series) count += std::max<Index>(0, static_cast<Index>(x.size()) - lag);
  return count;
}

struct Peak {
  Index lag;
  double alike;  // mean correlation over the multiples of the lag
};

/// The distances at which changes over `width` rows are alike.
void add_peaks(std::span<const std::span<const double>> series, Index width, Index longest, std::vector<Peak>& peaks) {
  const Changes x = changes_over(width, series);
  constexpr Index fewest = 8;  // products that a correlation is made of
  Index furthest = multiples * longest + 1;
  while (furthest >= 2 && pairs(x, furthest) < fewest) --furthest;
  if (furthest < 2) return;
  std::vector<double> alike(static_cast<std::size_t>(furthest + 2), 0.0);
  for (Index lag = 1; lag <= furthest; ++lag) alike[lag] = correlation(x, lag);
  // Changes over several rows overlap: those nearer than a few widths are alike by that alone.
  for (Index lag = width == 1 ? 2 : 4 * width; lag <= std::min(longest, furthest); ++lag) {
    if (alike[lag] < alike[lag - 1] || alike[lag] < alike[lag + 1]) continue;
    const auto independent = static_cast<double>(pairs(x, lag)) / static_cast<double>(width);
    const double clear = std::max(least_alike, least_deviations / std::sqrt(independent));
    double sum = 0.0, least = 1.0, count = 0.0;
    for (Index multiple = lag; multiple <= std::min(furthest, multiples * lag); multiple += lag) {
      sum += alike[multiple];
      least = std::min(least, alike[multiple]);
      ++count;
    }
    if (sum / count >= clear && least >= clear / 2.0) peaks.push_back({lag, sum / count});
  }
}

}  // namespace

// A season shows in changes, which have no trend: over one row, or over several where single rows are mostly noise.
training::FoundSeason training::look_for_season(std::span<const std::span<const double>> all) {
  const std::size_t most = static_cast<std::size_t>(most_season_rows) / std::max<std::size_t>(all.size(), 1) + 1;
  std::vector<std::span<const double>> series;
  Index rows = 0;
  for (const std::span<const double> values : all) {
    series.push_back(values.last(std::min(values.size(), most)));
    rows = std::max(rows, static_cast<Index>(series.back().size()));
  }
  const double needed = series.size() > 1 ? seasons_needed_of_many : seasons_needed;
  const auto longest = std::min(longest_season, static_cast<Index>(static_cast<double>(rows) / needed) - 1);
  std::vector<Peak> peaks;
  for (const Index width : {1, 4, 16}) {
    if (longest >= 2 && rows > 8 * width) add_peaks(series, width, longest, peaks);
  }
  double best = 0.0;
  for (const Peak& peak : peaks) best = std::max(best, peak.alike);
  FoundSeason season;
  for (const Peak& peak : peaks) {
    if (peak.alike < nearly_as_alike * best || (season.rows > 1 && peak.lag > season.rows)) continue;
    season = {peak.lag, peak.lag == season.rows ? std::max(peak.alike, season.alike) : peak.alike};
  }
  return season;
}

Index find_season(std::span<const double> values) { return training::look_for_season(std::span(&values, 1)).rows; }

}  // namespace penstock
