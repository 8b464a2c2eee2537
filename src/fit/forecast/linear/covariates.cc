#include "forecast/linear/covariates.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "base/algebra/cholesky.h"
#include "forecast/linear/forecast_error.h"

namespace penstock::training {

namespace {

using Numbers = std::vector<double>;

constexpr double effect_penalties[] = {1e-4, 1e-2, 1e-1, 1.0, 10.0};  // of each covariate's own sum of squares
constexpr double filter_penalty = 1e-4;                               // of the mean diagonal of the Gram matrix
constexpr Index most_effect_rows = 8000;                              // that are regressed on, the latest
constexpr Index longest_filter = 61;                                  // rows of an autoregression
constexpr Index plain_filter = 4;                                     // the same where there is no season
constexpr Index rows_of_lag = 5;                                      // and never fewer for each row that it reads
constexpr int rounds = 3;                                             // of effects and autoregression in turns

/// Sums of products, from which least squares of one unknown follow.
class LeastSquares {
 public:
  explicit LeastSquares(std::size_t inputs)
      : inputs_(static_cast<Index>(inputs)), gram_(inputs * inputs), products_(inputs), sums_(inputs) {}

  void add(std::span<const double> x, double y) {
    for (Index i = 0; i < inputs_; ++i) {
      for (Index j = 0; j <= i; ++j) gram_[i * inputs_ + j] += x[i] * x[j];
      products_[i] += x[i] * y;
      sums_[i] += x[i];
    }
    target_sum_ += y;
    ++count_;
  }

  Index count() const { return count_; }
  double square(Index input) const { return gram_[input * inputs_ + input]; }

  /// Solves with an intercept, and effect_penalties [inputs] on the diagonal; all zero if there is no single solution.
  Numbers solve(std::span<const double> ridge) const {
    Numbers gram = gram_, b = products_;
    const auto n = static_cast<double>(std::max<Index>(1, count_));
    for (Index i = 0; i < inputs_; ++i) {
      for (Index j = 0; j <= i; ++j) gram[i * inputs_ + j] -= sums_[i] * sums_[j] / n;
      gram[i * inputs_ + i] += ridge[i];
      b[i] -= sums_[i] * target_sum_ / n;
    }
    if (!factor_symmetric(gram, inputs_)) return Numbers(b.size(), 0.0);
    solve_factored(gram, inputs_, b);
    return b;
  }

 private:
  Index inputs_, count_ = 0;
  Numbers gram_, products_, sums_;  // [inputs, inputs], of which the lower triangle; [inputs]; [inputs]
  double target_sum_ = 0.0;
};

/// e_t = v_t - sum_k weights_k v_{t-1-k}.
double innovation(std::span<const double> values, Index row, std::span<const double> weights) {
  double sum = values[row];
  for (std::size_t k = 0; k < weights.size(); ++k) sum -= weights[k] * values[row - 1 - static_cast<Index>(k)];
  return sum;
}

/// The latest rows of series, those that have so many before them.
template <class Visit>
void visit_latest(ManySeries z, Index before, const Visit& visitor) {
  const double share = std::min(1.0, static_cast<double>(most_effect_rows) / static_cast<double>(rows_of(z)));
  for (std::size_t i = 0; i < z.size(); ++i) {
    const auto rows = static_cast<Index>(z[i].size());
    const auto most = static_cast<Index>(share * static_cast<double>(rows)) + 1;
    for (Index row = std::max(before, rows - most); row < rows; ++row) visitor(i, row);
  }
}

Index filter_length(ManySeries z, Index season) {
  const Index seasonal = season > 1 && season < longest_filter ? season + 1 : plain_filter;
  const Index most = std::min(rows_of(z) / rows_of_lag, common_rows(z) / 2);
  return std::max<Index>(1, most >= seasonal ? seasonal : std::min(plain_filter, most));
}

/// An autoregression of so many rows.
Numbers fit_filter(ManySeries z, Index lags) {
  LeastSquares regression(static_cast<std::size_t>(lags));
  Numbers past(static_cast<std::size_t>(lags));
  visit_latest(z, lags, [&](std::size_t series, Index row) {
    for (Index k = 0; k < lags; ++k) past[k] = z[series][row - 1 - k];
    regression.add(past, z[series][row]);
  });
  double diagonal = 0.0;
  for (Index k = 0; k < lags; ++k) diagonal += regression.square(k) / static_cast<double>(lags);
  return regression.solve(Numbers(past.size(), filter_penalty * diagonal));
}

/// Effects and the autoregression of what they leave, in turns.
class EffectsFit {
 public:
  EffectsFit(ManySeries z, ManyCovariates x, Index season) : z_(z), x_(x), filter_{1.0} {
    const Index lags = filter_length(z, season);
    for (int round = 0; round < rounds; ++round) {
      const auto rest = without_effects(z, x, effects(0));
      filter_ = fit_filter(spans_of(rest), lags);
    }
  }

  Numbers effects(std::size_t penalty) const {
    const std::size_t covariates = x_.front().size();
    LeastSquares regression(covariates);
    Numbers inputs(covariates);
    visit_latest(z_, static_cast<Index>(filter_.size()), [&](std::size_t series, Index row) {
      for (std::size_t c = 0; c < covariates; ++c) inputs[c] = innovation(x_[series][c], row, filter_);
      regression.add(inputs, innovation(z_[series], row, filter_));
    });
    if (regression.count() < rows_of_lag * static_cast<Index>(covariates)) return Numbers(covariates, 0.0);
    Numbers ridge;
    for (std::size_t c = 0; c < covariates; ++c) {
      const double square = regression.square(static_cast<Index>(c));
      ridge.push_back(square > 0.0 ? effect_penalties[penalty] * square : 1.0);  // one that never changes has no effect
    }
    return regression.solve(ridge);
  }

  /// Mean square of what the filter leaves of longer series behind those that were fitted to.
  double error_behind(ManySeries all, ManyCovariates x, std::size_t penalty) const {
    const auto rest = without_effects(all, x, effects(penalty));
    const auto lags = static_cast<Index>(filter_.size());
    double sum = 0.0;
    Index count = 0;
    for (std::size_t i = 0; i < rest.size(); ++i) {
      const auto rows = static_cast<Index>(rest[i].size());
      for (Index row = std::max(lags, static_cast<Index>(z_[i].size())); row < rows; ++row) {
        sum += std::pow(innovation(rest[i], row, filter_), 2.0);
        ++count;
      }
    }
    return count > 0 ? sum / static_cast<double>(count) : INFINITY;
  }

 private:
  ManySeries z_;
  ManyCovariates x_;
  Numbers filter_;
};

}  // namespace

double effect_on(const Covariates& x, Index row, std::span<const double> effects) {
  double sum = 0.0;
  for (std::size_t c = 0; c < effects.size(); ++c) sum += effects[c] * x[c][row];
  return sum;
}

std::vector<std::vector<double>> without_effects(ManySeries z, ManyCovariates x, std::span<const double> effects) {
  std::vector<Numbers> rest;
  for (std::size_t i = 0; i < z.size(); ++i) {
    Numbers& values = rest.emplace_back(z[i].begin(), z[i].end());
    for (std::size_t row = 0; row < values.size(); ++row) {
      values[row] -= effect_on(x[i], static_cast<Index>(row), effects);
    }
  }
  return rest;
}

std::vector<double> estimate_effects(ManySeries z, ManyCovariates x, const EffectsChoice& choice) {
  return EffectsFit(z, x, choice.season).effects(choice.penalty);
}

EffectsChoice choose_effects(ManySeries z, ManyCovariates x, Index season) {
  Numbers errors(std::size(effect_penalties), 0.0);
  for (const double share : beginnings_with(z, season)) {
    const auto first = beginnings_of(z, share);
    const EffectsFit fit(first, x, season);
    for (std::size_t penalty = 0; penalty < errors.size(); ++penalty) {
      const double error = fit.error_behind(z, x, penalty);
      errors[penalty] += std::log(std::max(error, std::numeric_limits<double>::min()));
    }
  }
  return {.season = season, .penalty = static_cast<std::size_t>(std::ranges::min_element(errors) - errors.begin())};
}

double error_with_effects(ManySeries z, ManyCovariates x, const EffectsChoice* effects, const LinearChoice& choice,
                          Index season, const RawValue& raw) {
  return mean_error(beginnings_with(z, season), [&](double share) {
    const Numbers found = effects != nullptr ? estimate_effects(beginnings_of(z, share), x, *effects) : Numbers();
    const auto rest = without_effects(z, x, found);
    const auto spans = spans_of(rest);
    const LinearForecast forecast = fit_linear_forecast(beginnings_of(spans, share), choice);
    return log_error_behind(spans, share, forecast, [&](std::size_t series, Index row, double value) {
      return raw(series, row, value + effect_on(x[series], row, found));
    });
  });
}

}  // namespace penstock::training
