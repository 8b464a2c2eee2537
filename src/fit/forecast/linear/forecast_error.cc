#include "forecast/linear/forecast_error.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace penstock::training {

namespace {

constexpr double scored_share = 0.25;        // of the rows, behind each beginning
constexpr Index most_origins = 60;           // that are scored behind each beginning ...
constexpr Index most_origins_of_many = 300;  // ... where there are that many series

}  // namespace

Beginnings beginnings_with(ManySeries z, Index season) {
  constexpr double earliest = 0.4, latest_first = 0.7, last = 0.8;
  constexpr Index rows_to_learn_from = 8;
  const auto needed = static_cast<double>(season > 1 ? 2 * season + rows_to_learn_from : 0);
  const double first = std::clamp(needed / static_cast<double>(common_rows(z)), earliest, latest_first);
  Beginnings result;
  for (std::size_t i = 0; i < result.size(); ++i) {
    result[i] = first + (last - first) * static_cast<double>(i) / static_cast<double>(result.size() - 1);
  }
  return result;
}

double log_error_behind(ManySeries z, double share, const LinearForecast& forecast, const RawValue& raw) {
  std::vector<Origins> origins;
  for (std::size_t i = 0; i < z.size(); ++i) {
    const auto rows = static_cast<Index>(z[i].size());
    const auto begin = static_cast<Index>(share * static_cast<double>(rows));
    const Index first = std::max(begin - 1, forecast.lags - 1);
    const Index last = std::min(rows - 2, first + static_cast<Index>(scored_share * static_cast<double>(rows)));
    origins.push_back({i, std::max<Index>(first, 0), last});
  }
  const Index most = std::clamp(static_cast<Index>(z.size()), most_origins, most_origins_of_many);
  const Index stride = std::max<Index>(1, (count_of(origins) + most - 1) / most);
  double sum = 0.0, count = 0.0;
  std::vector<double> forecasts(static_cast<std::size_t>(forecast.horizon));
  visit(origins, stride, [&](std::size_t series, Index row) {
    const auto rows = static_cast<Index>(z[series].size());
    forecast.forecast_from(z[series], row, forecasts);
    for (Index ahead = 1; ahead <= forecast.horizon && row + ahead < rows; ++ahead) {
      const double error =
          raw(series, row + ahead, forecasts[ahead - 1]) - raw(series, row + ahead, z[series][row + ahead]);
      sum += error * error;
      ++count;
    }
  });
  return std::log(std::max(count > 0.0 ? sum / count : 0.0, std::numeric_limits<double>::min()));
}

}  // namespace penstock::training
