#include "train/smoothing.h"

#include <algorithm>

namespace penstock::training {

namespace {

constexpr Index most_lags = 512;
constexpr Index seasons_seen = 6;
constexpr Index rows_seen = 48;     // without a season
constexpr Index rows_to_start = 8;  // that the first trend is taken from

/// A number that is linear in the last rows: its weights, the oldest row first.
using Combination = std::vector<double>;

void add(Combination& to, double factor, const Combination& what) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] += factor * what[i];
}

/// The state of a smoothing as it walks through the rows.
class State {
 public:
  State(const Smoothing& smoothing, Index begin_of_second)
      : smoothing_(smoothing), lags_(static_cast<std::size_t>(smoothing.lags)), level_(lags_, 0.0), trend_(lags_, 0.0) {
    const Index period = smoothing.period;
    const double share = 1.0 / static_cast<double>(period);
    for (Index i = 0; i < period; ++i) level_[i] += share;
    if (smoothing.trend > 0.0) {
      const double distance = static_cast<double>(begin_of_second);
      for (Index i = 0; i < period; ++i) {
        trend_[i] -= share / distance;
        trend_[begin_of_second + i] += share / distance;
      }
    }
    for (Index i = 0; period > 1 && i < period; ++i) {
      seasons_.emplace_back(lags_, 0.0);
      seasons_.back()[i] += 1.0;
      add(seasons_.back(), -1.0, level_);
      // The level is that of the middle of the season.
      add(seasons_.back(), -(static_cast<double>(i) - static_cast<double>(period - 1) / 2.0), trend_);
    }
    if (period > 1) add(level_, static_cast<double>(period - 1) / 2.0, trend_);
  }

  /// What is expected `ahead` (from 1) of row `row`.
  Combination expected(Index row, Index ahead) const {
    Combination result = level_;
    double factor = 0.0, power = 1.0;
    for (Index i = 0; i < ahead; ++i) factor += power *= smoothing_.damping;
    add(result, factor, trend_);
    if (!seasons_.empty()) add(result, 1.0, seasons_[static_cast<std::size_t>((row + ahead) % smoothing_.period)]);
    return result;
  }

  void see(Index row) {
    Combination error = expected(row - 1, 1);
    for (double& weight : error) weight = -weight;
    error[row] += 1.0;
    add(level_, smoothing_.damping, trend_);
    add(level_, smoothing_.level, error);
    for (double& weight : trend_) weight *= smoothing_.damping;
    add(trend_, smoothing_.level * smoothing_.trend, error);
    if (!seasons_.empty()) {
      add(seasons_[static_cast<std::size_t>(row % smoothing_.period)], smoothing_.season * (1.0 - smoothing_.level),
          error);
    }
  }

 private:
  const Smoothing& smoothing_;
  std::size_t lags_;
  Combination level_, trend_;
  std::vector<Combination> seasons_;
};

}  // namespace

std::vector<Smoothing> smoothings(Index rows, Index period) {
  const Index lags = std::min({most_lags, rows / 2 - 1, period > 1 ? seasons_seen * period : rows_seen});
  std::vector<Smoothing> all;
  if (lags < std::max(2 * period, rows_to_start + 1)) return all;
  const std::vector<double> seasons = period > 1 ? std::vector<double>{0.05, 0.2, 0.5} : std::vector<double>{0.0};
  for (const double level : {0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.95}) {
    for (const double season : seasons) {
      for (const double correction : {0.0, 0.5, 1.0})
        all.push_back({level, 0.0, season, 1.0, period, correction, lags});
      for (const double trend : {0.02, 0.1, 0.3}) {
        for (const double damping : {0.9, 1.0}) all.push_back({level, trend, season, damping, period, 0.0, lags});
      }
    }
  }
  return all;
}

LinearForecast smooth(const Smoothing& smoothing, Index horizon) {
  const Index second = smoothing.period > 1 ? smoothing.period : rows_to_start;
  State state(smoothing, second);
  for (Index row = smoothing.period; row < smoothing.lags; ++row) state.see(row);
  LinearForecast forecast;
  forecast.lags = smoothing.lags;
  forecast.horizon = horizon;
  forecast.bias.assign(static_cast<std::size_t>(horizon), 0.0);
  forecast.weights.assign(static_cast<std::size_t>(smoothing.lags * horizon), 0.0);
  for (Index h = 0; h < horizon; ++h) {
    const Combination expected = state.expected(smoothing.lags - 1, h + 1);
    for (Index k = 0; k < smoothing.lags; ++k) {
      forecast.weights[k * horizon + h] = expected[static_cast<std::size_t>(smoothing.lags - 1 - k)];
    }
  }
  return forecast;
}

}  // namespace penstock::training
