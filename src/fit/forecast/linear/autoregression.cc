#include "forecast/linear/autoregression.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "base/algebra/cholesky.h"
#include "forecast/linear/arima_fit.h"
#include "forecast/linear/forecast_error.h"
#include "forecast/linear/origins.h"
#include "forecast/linear/season_choice.h"
#include "forecast/linear/smoothing_fit.h"
#include "penstock/stop.h"

namespace penstock::training {

namespace {

using Numbers = std::vector<double>;

constexpr double penalties[] = {1e-5, 1e-4, 1e-3, 1e-2,
                                1e-1, 1.0,  10.0, 100.0};  // of the mean diagonal of the Gram matrix
constexpr Index most_rows = 8000;                          // that are regressed on, the latest
constexpr Index fewest_rows = 8;
// For regressions of every distance: what they gain where one of the next row is mistaken, fewer rows take away by
// chance (Marcellino, Stock and Watson, 2006).
constexpr Index fewest_direct_rows = 80;
constexpr Index longest_lags = 512;
constexpr double wildest_weight = 1e4;
constexpr double sharpness = 3.0;  // power of an error's ratio to the best that is a part's weight in the mean

/// Coefficients p of w_t = sum_j p_j z_{t-j}.
Numbers differences_of(const RegressionShape& shape, Index season) {
  return difference_polynomial({.plain = {.difference = shape.difference ? 1 : 0},
                                .seasonal = {.difference = shape.seasonal ? 1 : 0},
                                .period = season});
}

/// Mean and variance of numbers that come one by one (Welford, 1962).
class Moments {
 public:
  void add(double value) {
    const double from_before = value - mean_;
    mean_ += from_before / ++count_;
    squares_ += from_before * (value - mean_);
  }
  double variance() const { return count_ > 0.0 ? squares_ / count_ : 0.0; }

 private:
  double count_ = 0.0, mean_ = 0.0, squares_ = 0.0;
};

/// The regressions of one shape on series: all choices that share it, of every distance by itself or, rolled out, of
/// the next row alone, which has more rows to learn from.
class Regression {
 public:
  Regression(ManySeries z, const RegressionShape& shape, bool rolled, Index horizon, Index season)
      : z_(z.begin(), z.end()),
        shape_(shape),
        rolled_(rolled),
        said_(horizon),
        horizon_(rolled ? 1 : horizon),
        p_(differences_of(shape, season)) {
    const Index order = static_cast<Index>(p_.size()) - 1;
    reach_ = std::max<Index>(1, shape.lags + order);
    common_ = common_rows(z);
    const double share = std::min(1.0, static_cast<double>(most_rows) / static_cast<double>(rows_of(z)));
    for (std::size_t i = 0; i < z_.size(); ++i) {
      const auto rows = static_cast<Index>(z_[i].size());
      const Index last = rows - 1 - horizon_;  // the last row whose whole horizon is known
      const auto most = z_.size() > 1 ? static_cast<Index>(share * static_cast<double>(rows)) + 1 : most_rows;
      origins_.push_back({i, std::max(reach_ - 1, last + 1 - most), last});
    }
    count_ = count_of(origins_);
    if (!enough()) return;
    difference();
    if (shape.lags > 0 && ends_with_jump()) count_ = 0;
    if (!enough()) return;
    roll_out_without_news();
    accumulate();
  }

  bool enough() const { return count_ >= std::max(fewest_rows, shape_.lags / 3) && reach_ <= common_; }

  /// False if there is no such forecast, or a wild one.
  bool fit(bool intercept, std::size_t penalty, LinearForecast& forecast) const {
    const Index n = shape_.lags, outputs = horizon_;
    const auto count = static_cast<double>(count_);
    Numbers gram = gram_, b = products_;
    if (intercept) {
      for (Index i = 0; i < n; ++i) {
        for (Index j = 0; j < n; ++j) gram[i * n + j] -= sums_[i] * sums_[j] / count;
        for (Index h = 0; h < outputs; ++h) b[i * outputs + h] -= sums_[i] * target_sums_[h] / count;
      }
    }
    double diagonal = 0.0;
    for (Index i = 0; i < n; ++i) diagonal += gram[i * n + i] / static_cast<double>(n);
    if (n > 0 && !(diagonal > 0.0)) return false;
    for (Index i = 0; i < n; ++i) gram[i * n + i] += penalties[penalty] * diagonal;
    if (!factor_symmetric(gram, n)) return false;
    solve_factored(gram, n, b, outputs);
    Numbers constants(static_cast<std::size_t>(outputs), 0.0);
    for (Index h = 0; intercept && h < outputs; ++h) {
      double mean = target_sums_[h];
      for (Index i = 0; i < n; ++i) mean -= sums_[i] * b[i * outputs + h];
      constants[h] = mean / count;
    }
    forecast.lags = reach_;
    forecast.horizon = said_;
    if (rolled_) {
      roll_out(b, constants[0], said_, forecast);
    } else {
      regress(b, constants, forecast);
    }
    return std::ranges::all_of(forecast.weights, [](double weight) { return std::abs(weight) < wildest_weight; });
  }

 private:
  /// w [rows] of each series, 0 where it is not known.
  void difference() {
    for (const std::span<const double> z : z_) {
      Numbers& w = w_.emplace_back(z.size(), 0.0);
      for (std::size_t t = p_.size() - 1; t < z.size(); ++t) {
        for (std::size_t j = 0; j < p_.size(); ++j) w[t] += p_[j] * z[t - j];
      }
    }
  }

  /// Returns whether differences vary much more with their last rows, after which there is nothing to learn from, than
  /// without. If even growth ends with a jump, coefficients would be as large as the jump is out of proportion.
  bool ends_with_jump() const {
    constexpr double most = 10.0;  // ratio of variances
    Moments all, followed;
    for (std::size_t i = 0; i < z_.size(); ++i) {
      for (Index t = static_cast<Index>(p_.size()) - 1; t < static_cast<Index>(z_[i].size()); ++t) {
        all.add(w_[i][t]);
        if (t <= origins_[i].last) followed.add(w_[i][t]);
      }
    }
    return all.variance() > most * followed.variance();
  }

  /// The forecast [reach, horizon] when all differences to come are zero.
  void roll_out_without_news() {
    LinearForecast nothing;
    roll_out(Numbers(static_cast<std::size_t>(shape_.lags * horizon_), 0.0), 0.0, horizon_, nothing);
    prior_ = std::move(nothing.weights);
  }

  void accumulate() {
    constexpr Index rows_between_stops = 1024;
    const Index n = shape_.lags;
    gram_.assign(static_cast<std::size_t>(n * n), 0.0);
    products_.assign(static_cast<std::size_t>(n * horizon_), 0.0);
    sums_.assign(static_cast<std::size_t>(n), 0.0);
    target_sums_.assign(static_cast<std::size_t>(horizon_), 0.0);
    Numbers x(static_cast<std::size_t>(n)), y(static_cast<std::size_t>(horizon_));
    visit(origins_, 1, [&](std::size_t series, Index row) {
      if (row % rows_between_stops == 0) stop_if_asked();
      const std::span<const double> z = z_[series];
      const Numbers& w = w_[series];
      for (Index k = 0; k < n; ++k) x[k] = w[row - k];
      for (Index h = 0; h < horizon_; ++h) y[h] = z[row + h + 1];
      for (Index k = 0; k < reach_; ++k) {
        for (Index h = 0; h < horizon_; ++h) y[h] -= prior_[k * horizon_ + h] * z[row - k];
      }
      for (Index i = 0; i < n; ++i) {
        sums_[i] += x[i];
        for (Index j = 0; j <= i; ++j) gram_[i * n + j] += x[i] * x[j];
        for (Index h = 0; h < horizon_; ++h) products_[i * horizon_ + h] += x[i] * y[h];
      }
      for (Index h = 0; h < horizon_; ++h) target_sums_[h] += y[h];
    });
    for (Index i = 0; i < n; ++i) {
      for (Index j = i + 1; j < n; ++j) gram_[i * n + j] = gram_[j * n + i];
    }
  }

  /// Weights of values from weights of differences: column `h` of coefficients [lags, horizon].
  Numbers on_values(const Numbers& coefficients, Index h) const {
    Numbers result(static_cast<std::size_t>(reach_), 0.0);
    for (Index k = 0; k < shape_.lags; ++k) {
      for (std::size_t j = 0; j < p_.size(); ++j) {
        result[static_cast<std::size_t>(k) + j] += coefficients[k * horizon_ + h] * p_[j];
      }
    }
    return result;
  }

  void regress(const Numbers& coefficients, const Numbers& constants, LinearForecast& forecast) const {
    forecast.weights = prior_;
    forecast.bias = constants;
    for (Index h = 0; h < horizon_; ++h) {
      const Numbers weights = on_values(coefficients, h);
      for (Index k = 0; k < reach_; ++k) forecast.weights[k * horizon_ + h] += weights[k];
    }
  }

  /// The forecast one row ahead, applied over and over to what it said.
  void roll_out(const Numbers& coefficients, double constant, Index horizon, LinearForecast& forecast) const {
    Numbers one = on_values(coefficients, 0);
    for (std::size_t j = 1; j < p_.size(); ++j) one[j - 1] -= p_[j];
    const auto reach = static_cast<std::size_t>(reach_), width = reach + 1;
    // Coefficients of each known or forecast value, newest first, over the last `reach` known values and the constant.
    std::vector<Numbers> values;
    for (std::size_t k = 0; k < reach; ++k) {
      values.emplace_back(width, 0.0);
      values.back()[k] = 1.0;
    }
    forecast.weights.assign(reach * static_cast<std::size_t>(horizon), 0.0);
    forecast.bias.assign(static_cast<std::size_t>(horizon), 0.0);
    for (Index h = 0; h < horizon; ++h) {
      Numbers next(width, 0.0);
      next[reach] = constant;
      for (std::size_t k = 0; k < reach; ++k) {
        if (one[k] == 0.0) continue;
        for (std::size_t i = 0; i < width; ++i) next[i] += one[k] * values[k][i];
      }
      for (std::size_t k = 0; k < reach; ++k) forecast.weights[k * static_cast<std::size_t>(horizon) + h] = next[k];
      forecast.bias[h] = next[reach];
      values.pop_back();
      values.insert(values.begin(), std::move(next));
    }
  }

  std::vector<std::span<const double>> z_;
  RegressionShape shape_;
  bool rolled_;
  Index said_, horizon_;  // distances that forecasts have, and that there are regressions of
  Index reach_ = 1, common_ = 0, count_ = 0;
  std::vector<Origins> origins_;
  std::vector<Numbers> w_;
  Numbers p_, prior_;
  Numbers gram_, products_, sums_, target_sums_;  // [lags, lags], [lags, horizon], [lags], [horizon]
};

/// Returns whether values lie much further apart than each from the one before. The past then says little about a level
/// that they return to, and a regression on values, which has one, would damp growth beyond all values seen.
bool wanders(ManySeries z) {
  constexpr double wide = 100.0;  // variance of values to mean square of steps
  double values = 0.0, steps = 0.0;
  for (const std::span<const double> each : z) {
    const double mean = std::accumulate(each.begin(), each.end(), 0.0) / static_cast<double>(each.size());
    for (const double value : each) values += (value - mean) * (value - mean);
    for (std::size_t t = 1; t < each.size(); ++t) steps += (each[t] - each[t - 1]) * (each[t] - each[t - 1]);
  }
  return values > wide * steps;
}

/// Returns the shapes to try. Without lags, a shape is a baseline: the last value, a season ago, and with an intercept
/// drift or the mean.
std::vector<RegressionShape> shapes(Index season) {
  const bool seasonal = season > 1;
  std::set<Index> lags = {0, 1, 2, 3, 4, 8, 12};
  if (seasonal) lags.insert({season, season + 1, 2 * season + 1});
  if (!seasonal) lags.insert(24);
  std::vector<RegressionShape> all;
  for (const Index n : lags) {
    for (const bool difference : {false, true}) {
      for (const bool between_seasons : {false, true}) {
        if (n <= longest_lags && (seasonal || !between_seasons)) all.push_back({difference, between_seasons, n});
      }
    }
  }
  return all;
}

/// Regressions that are fitted to a beginning together, as they share their sums, and how far each is off behind it.
struct Comparison {
  RegressionShape shape;
  bool rolled;
  double share;
  std::vector<std::pair<RegressionChoice, double>> log_errors = {};
};

std::vector<Comparison> comparisons(ManySeries z, const Beginnings& beginnings, Index horizon, Index season) {
  const bool differences_alone = season == 1 && wanders(z);
  const bool direct = horizon > 1 && rows_of(z) >= fewest_direct_rows;
  std::vector<Comparison> all;
  for (const RegressionShape& shape : shapes(season)) {
    if (differences_alone && !shape.difference) continue;
    for (const double share : beginnings) {
      all.push_back({shape, true, share});
      if (direct && shape.lags > 0) all.push_back({shape, false, share});
    }
  }
  return all;
}

void compare(ManySeries z, Index horizon, Index season, const RawValue& raw, Comparison& comparison) {
  const auto& [shape, rolled, share, log_errors] = comparison;
  const Regression regression(beginnings_of(z, share), shape, rolled, horizon, season);
  if (!regression.enough()) return;
  LinearForecast forecast;
  for (const bool intercept : {false, true}) {
    for (std::size_t penalty = 0; penalty < (shape.lags > 0 ? std::size(penalties) : 1); ++penalty) {
      stop_if_asked();
      if (!regression.fit(intercept, penalty, forecast)) continue;
      comparison.log_errors.emplace_back(RegressionChoice{shape, intercept, rolled, penalty},
                                         log_error_behind(z, share, forecast, raw));
    }
  }
}

/// The choices of every shape with the errors that they make; those that fail anywhere are left out.
std::map<RegressionChoice, double> score_choices(ManySeries z, const Beginnings& beginnings, Index horizon,
                                                 Index season, const RawValue& raw, int threads) {
  std::vector<Comparison> all = comparisons(z, beginnings, horizon, season);
  side_by_side(threads, all.size(), [&](std::size_t i) { compare(z, horizon, season, raw, all[i]); });
  std::map<RegressionChoice, std::pair<double, int>> sums;
  for (const Comparison& comparison : all) {
    for (const auto& [choice, log_error] : comparison.log_errors) {
      auto& [sum, folds] = sums[choice];
      sum += log_error;
      ++folds;
    }
  }
  std::map<RegressionChoice, double> errors;
  for (const auto& [choice, entry] : sums) {
    const auto& [sum, folds] = entry;
    if (folds == static_cast<int>(std::size(beginnings)) && std::isfinite(sum)) errors[choice] = std::exp(sum / folds);
  }
  return errors;
}

std::optional<LinearForecast> fit_smoothings_of(ManySeries z, const LinearChoice& choice, std::optional<double> zero) {
  const Index lags = std::min(choice.window, common_rows(z));
  return fit_mean_smoothing(z, choice.season, lags, choice.horizon, zero);
}

/// The best of each kind so far.
using BestOfKinds = std::map<std::tuple<bool, bool, bool, bool>, LinearChoice::Part>;

void keep_better(BestOfKinds& best, const BestOfKinds::key_type& kind, LinearChoice::Part part) {
  if (!std::isfinite(part.error)) return;
  const auto found = best.find(kind);
  if (found == best.end() || part.error < found->second.error) best[kind] = part;
}

/// The parts of a mean, weighted by how their errors compare with the best of all.
std::vector<LinearChoice::Part> weighted(const BestOfKinds& best) {
  double least = INFINITY, sum = 0.0;
  for (const auto& [kind, part] : best) least = std::min(least, part.error);
  std::vector<LinearChoice::Part> parts;
  for (const auto& [kind, part] : best) {
    parts.push_back(part);
    parts.back().weight = part.error > least ? std::pow(least / part.error, sharpness) : 1.0;
    sum += parts.back().weight;
  }
  for (LinearChoice::Part& part : parts) part.weight /= sum;
  return parts;
}

/// The mean of the regressions alone; none if none can be fitted.
std::optional<LinearForecast> fit_regressions(ManySeries z, const LinearChoice& choice) {
  MeanForecast mean(choice.horizon);
  for (const LinearChoice::Part& part : choice.parts) {
    LinearForecast forecast;
    const RegressionChoice& each = part.regression;
    const Regression regression(z, each.shape, each.rolled, choice.horizon, choice.season);
    const bool fits = regression.enough() && regression.fit(each.intercept, each.penalty, forecast);
    if (fits) mean.add(part.weight, forecast);
  }
  return mean.take();
}

std::optional<LinearForecast> fit_arima_of(ManySeries z, const LinearChoice& choice) {
  const Index lags = std::min(choice.arima_window, common_rows(z));
  if (lags <= choice.arima->rows_lost()) return std::nullopt;
  const auto arima = fit_arima(z, *choice.arima);
  if (!arima) return std::nullopt;
  return forecast_of(*arima, lags, choice.horizon);
}

/// The error of smoothings behind the beginnings; infinite if there are too few rows.
double choose_smoothings(ManySeries z, const Beginnings& beginnings, const RawValue& raw, int threads,
                         std::optional<double> zero, LinearChoice& choice) {
  const auto window = smoothing_window(common_rows(z), choice.season);
  if (!window) return INFINITY;
  choice.window = *window;
  // Too few rows to compare anything behind their beginnings: Akaike's criterion needs none.
  if (choice.parts.empty()) choice.smoothing = 1.0;
  return error_behind(beginnings, z, raw, threads,
                      [&](ManySeries each) { return fit_smoothings_of(each, choice, zero); });
}

/// Chooses an ARIMA and returns its error. Its orders are those of all rows.
double choose_arima(ManySeries z, const Beginnings& beginnings, const RawValue& raw, int threads,
                    LinearChoice& choice) {
  const auto window = arima_window(common_rows(z), choice.season);
  if (!window) return INFINITY;
  choice.arima_window = *window;
  // A season of an unusual length is a cycle, whose phase wanders.
  choice.arima = choose_orders(z, is_customary(choice.season) ? choice.season : 1);
  if (!choice.arima) return INFINITY;
  return error_behind(beginnings, z, raw, threads, [&](ManySeries each) { return fit_arima_of(each, choice); });
}

/// Gives regressions, smoothings and an ARIMA their shares. They are near to equal: few errors say little about which
/// of good forecasts is the best one, and a mean of unlike ones is better than each more often than not.
void share_out(ManySeries z, const Beginnings& beginnings, const RawValue& raw, int threads, std::optional<double> zero,
               LinearChoice& choice) {
  constexpr double power = 0.5;  // of mean square errors: shares fall with their roots
  // None of an infinite error, and finite ones of none.
  const auto odds = [](double error) { return std::pow(std::max(error, std::numeric_limits<double>::min()), -power); };
  const double smoothing_error = choose_smoothings(z, beginnings, raw, threads, zero, choice);
  const double arima_error = choose_arima(z, beginnings, raw, threads, choice);
  const double regressions = odds(choice.error), smoothings = odds(smoothing_error), arima = odds(arima_error);
  choice.error = std::min(choice.error, smoothing_error);
  const double sum = regressions + smoothings + arima;
  if (!(sum > 0.0)) return;
  choice.smoothing = smoothings / sum;
  choice.arima_share = arima / sum;
}

}  // namespace

void LinearForecast::forecast_from(std::span<const double> z, Index row, std::span<double> forecasts) const {
  std::ranges::copy(bias, forecasts.begin());
  for (Index k = 0; k < lags; ++k) {
    const double* const of_lag = weights.data() + k * horizon;
    const double value = z[row - k];
    for (Index h = 0; h < horizon; ++h) forecasts[h] += of_lag[h] * value;
  }
}

LinearChoice choose_linear_forecast(ManySeries z, Index horizon, Index season, Index longest_season,
                                    const RawValue& raw, int threads, std::optional<double> zero) {
  const Beginnings beginnings = beginnings_with(z, longest_season);
  LinearChoice choice{.horizon = horizon, .season = season, .error = INFINITY, .parts = {}};
  BestOfKinds best;
  for (const auto& [regression, error] : score_choices(z, beginnings, horizon, season, raw, threads)) {
    const RegressionShape& shape = regression.shape;
    keep_better(best, {shape.difference, shape.seasonal, regression.rolled, shape.lags > 0},
                {.regression = regression, .error = error});
  }
  choice.parts = weighted(best);
  if (!choice.parts.empty()) {
    choice.error =
        error_behind(beginnings, z, raw, threads, [&](ManySeries each) { return fit_regressions(each, choice); });
  }
  share_out(z, beginnings, raw, threads, zero, choice);
  return choice;
}

LinearForecast fit_linear_forecast(ManySeries z, const LinearChoice& choice, std::optional<double> zero) {
  MeanForecast mean(choice.horizon);
  const auto take = [&](double share, const std::optional<LinearForecast>& forecast) {
    if (forecast) mean.add(share, *forecast);
  };
  if (choice.smoothing > 0.0) take(choice.smoothing, fit_smoothings_of(z, choice, zero));
  if (choice.arima_share > 0.0) take(choice.arima_share, fit_arima_of(z, choice));
  take(1.0 - choice.smoothing - choice.arima_share, fit_regressions(z, choice));
  const auto horizon = static_cast<std::size_t>(choice.horizon);
  const LinearForecast last_value{1, choice.horizon, std::vector<double>(horizon, 1.0), std::vector<double>(horizon)};
  return mean.take().value_or(last_value);
}

}  // namespace penstock::training
