#include "forecast/linear/smoothing.h"

#include <algorithm>
#include <numeric>

#include "base/algebra/cholesky.h"

namespace penstock::training {

SmoothingState::SmoothingState(const Smoothing& smoothing, Index one) {
  if (smoothing.period > 1) seasons_.assign(static_cast<std::size_t>(smoothing.period), 0.0);
  const Index first_season = smoothing.has_trend ? 2 : 1;
  if (one == 0) level_ = 1.0;
  if (smoothing.has_trend && one == 1) trend_ = 1.0;
  if (one >= first_season) seasons_[one - first_season] = 1.0;
}

void SmoothingState::add(double factor, const SmoothingState& other) {
  level_ += factor * other.level_;
  trend_ += factor * other.trend_;
  for (std::size_t i = 0; i < seasons_.size(); ++i) seasons_[i] += factor * other.seasons_[i];
}

FirstState::FirstState(const Smoothing& smoothing, Index rows)
    : singles_(smoothing.has_trend ? 2 : 1), states_(static_cast<std::size_t>(smoothing.states())) {
  const std::size_t responses = std::min(states_, singles_ + 1), n = states_;
  for (std::size_t i = 0; i < responses; ++i) {
    SmoothingState state(smoothing, static_cast<Index>(i));
    std::vector<double>& errors = errors_.emplace_back();
    for (Index row = 0; row < rows; ++row) errors.push_back(state.see(smoothing, 0.0));
  }
  factor_.assign(n * n, 0.0);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < responses; ++j) {
      if (i >= j) factor_[i * n + j] = product(i, errors_[j]);
    }
  }
  // Two seasons that are each one row later have the same product but for what has left at the end.
  for (std::size_t i = responses; i < n; ++i) {
    for (std::size_t j = responses; j <= i; ++j) {
      const std::vector<double>& errors = errors_.back();
      const auto gone = [&](std::size_t one) {
        const std::size_t delay = response_of(one - 1).delay;
        return delay < errors.size() ? errors[errors.size() - 1 - delay] : 0.0;
      };
      factor_[i * n + j] = factor_[(i - 1) * n + j - 1] - gone(i) * gone(j);
    }
  }
  constexpr double ridge = 1e-9;  // relative, against rounding alone
  for (std::size_t i = 0; i < n; ++i) factor_[i * n + i] *= 1.0 + ridge;
  solvable_ = factor_symmetric(factor_, smoothing.states());
}

double FirstState::product(std::size_t one, std::span<const double> errors) const {
  const auto [response, delay] = response_of(one);
  if (delay >= errors.size()) return 0.0;
  return std::inner_product(errors.begin() + static_cast<std::ptrdiff_t>(delay), errors.end(),
                            errors_[response].begin(), 0.0);
}

std::vector<double> FirstState::solve(std::span<const double> errors) const {
  std::vector<double> x(states_);
  for (std::size_t i = 0; i < states_; ++i) x[i] = -product(i, errors);
  solve_factored(factor_, static_cast<Index>(states_), x);
  return x;
}

LinearForecast smooth(const Smoothing& smoothing, Index lags, Index horizon) {
  const FirstState first(smoothing, lags);
  LinearForecast forecast{.lags = lags, .horizon = horizon, .weights = {}, .bias = {}};
  forecast.weights.assign(static_cast<std::size_t>(lags * horizon), 0.0);
  forecast.bias.assign(static_cast<std::size_t>(horizon), smoothing.zero);
  std::vector<SmoothingState> last;  // of the response to each unit
  for (Index one = 0; one < smoothing.states(); ++one) {
    SmoothingState& state = last.emplace_back(smoothing, one);
    for (Index row = 0; row < lags; ++row) state.see(smoothing, 0.0);
  }
  std::vector<double> errors(static_cast<std::size_t>(lags));
  // The weight of a row is the forecast of a series that is 1 in this row and 0 elsewhere.
  for (Index one = 0; one < lags; ++one) {
    SmoothingState state(smoothing);
    for (Index row = 0; row < lags; ++row) errors[row] = state.see(smoothing, row == one ? 1.0 : 0.0);
    const std::vector<double> numbers = first.solve(errors);
    for (std::size_t i = 0; i < numbers.size(); ++i) state.add(numbers[i], last[i]);
    Ahead ahead;
    for (Index h = 0; h < horizon; ++h) {
      ahead = ahead.next(smoothing);
      const double weight = state.expected(h, ahead);
      forecast.weights[(lags - 1 - one) * horizon + h] = weight;
      forecast.bias[h] -= weight * smoothing.zero;
    }
  }
  return forecast;
}

}  // namespace penstock::training
