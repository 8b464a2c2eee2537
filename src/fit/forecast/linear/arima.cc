#include "forecast/linear/arima.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/algebra/cholesky.h"

namespace penstock::training {

namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();
// Roots nearer to the unit circle say that a difference too few or too many was taken; likelihoods are flat there.
constexpr double largest_partial = 0.98;

LagPolynomial product_of(const LagPolynomial& a, const LagPolynomial& b) {
  LagPolynomial product(a.size() + b.size() - 1, 0.0);
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t j = 0; j < b.size(); ++j) product[i + j] += a[i] * b[j];
  }
  return product;
}

/// One more order of the best linear prediction from `coefficients.size()` rows, whose partial autocorrelation is
/// given.
void step_up(std::vector<double>& coefficients, double partial) {
  const std::vector<double> before = coefficients;
  for (std::size_t j = 0; j < before.size(); ++j) coefficients[j] -= partial * before[before.size() - 1 - j];
  coefficients.push_back(partial);
}

/// 1 - sum_k c_k B^(k step), the c of partial autocorrelations.
LagPolynomial factor_of(std::span<const double> numbers, Index step) {
  std::vector<double> coefficients;
  for (const double number : numbers) step_up(coefficients, largest_partial * std::tanh(number));
  LagPolynomial factor(1 + coefficients.size() * static_cast<std::size_t>(step), 0.0);
  factor[0] = 1.0;
  for (std::size_t k = 0; k < coefficients.size(); ++k)
    factor[(k + 1) * static_cast<std::size_t>(step)] = -coefficients[k];
  return factor;
}

/// Autocovariances [count] of an autoregression with errors of variance 1.
std::vector<double> autocovariances_of(const LagPolynomial& ar, std::size_t count) {
  const std::size_t order = ar.size() - 1;
  // The best predictions of every lower order, by Levinson's recursion backwards.
  std::vector<std::vector<double>> predictions(order + 1);
  for (std::size_t k = 1; k <= order; ++k) predictions[order].push_back(-ar[k]);
  double variance = 1.0;
  for (std::size_t n = order; n > 0; --n) {
    const std::vector<double>& above = predictions[n];
    const double partial = above.back(), rest = 1.0 - partial * partial;
    if (!(rest > 0.0)) return {};
    variance /= rest;
    for (std::size_t j = 0; j + 1 < n; ++j)
      predictions[n - 1].push_back((above[j] + partial * above[n - 2 - j]) / rest);
  }
  std::vector<double> result = {variance};
  for (std::size_t k = 1; k < count; ++k) {
    const std::vector<double>& prediction = predictions[std::min(k, order)];
    double sum = 0.0;
    for (std::size_t j = 0; j < prediction.size(); ++j) sum += prediction[j] * result[k - 1 - j];
    result.push_back(sum);
  }
  return result;
}

/// n log of the mean square of scaled errors.
double log_likelihood_part(double squares, double count) {
  return count * std::log(std::max(squares / count, std::numeric_limits<double>::min()));
}

}  // namespace

Arima arima_of(const ArimaOrders& orders, std::span<const double> numbers, double spread) {
  std::size_t taken = 0;
  const auto factor = [&](Index terms, Index step) {
    const auto part = numbers.subspan(taken, static_cast<std::size_t>(terms));
    taken += part.size();
    return factor_of(part, step);
  };
  Arima result{.orders = orders};
  result.ar = factor(orders.plain.ar, 1);
  result.ma = factor(orders.plain.ma, 1);
  result.ar = product_of(result.ar, factor(orders.seasonal.ar, orders.period));
  result.ma = product_of(result.ma, factor(orders.seasonal.ma, orders.period));
  if (orders.has_mean) result.mean = spread * numbers[taken];
  return result;
}

LagPolynomial difference_polynomial(const ArimaOrders& orders) {
  LagPolynomial result = {1.0};
  const auto multiply = [&](Index times, Index distance) {
    LagPolynomial factor(static_cast<std::size_t>(distance) + 1, 0.0);
    factor.front() = 1.0;
    factor.back() = -1.0;
    for (Index i = 0; i < times; ++i) result = product_of(result, factor);
  };
  multiply(orders.plain.difference, 1);
  multiply(orders.seasonal.difference, orders.period);
  return result;
}

std::vector<double> differenced(const ArimaOrders& orders, std::span<const double> z) {
  const LagPolynomial p = difference_polynomial(orders);
  std::vector<double> w;
  for (std::size_t t = p.size() - 1; t < z.size(); ++t) {
    double sum = 0.0;
    for (std::size_t k = 0; k < p.size(); ++k) sum += p[k] * z[t - k];
    w.push_back(sum);
  }
  return w;
}

std::vector<double> autocovariances(const Arima& arima, Index count) {
  const std::size_t reach = arima.ma.size() - 1, n = static_cast<std::size_t>(count);
  const std::vector<double> of_ar = autocovariances_of(arima.ar, n + reach);
  if (of_ar.empty()) return {};
  std::vector<double> result(n, 0.0);
  for (std::size_t distance = 0; distance <= reach; ++distance) {
    double of_ma = 0.0;
    for (std::size_t i = 0; i + distance <= reach; ++i) of_ma += arima.ma[i] * arima.ma[i + distance];
    if (of_ma == 0.0) continue;
    for (std::size_t k = 0; k < n; ++k) {
      result[k] += of_ma * of_ar[k + distance];
      if (distance > 0) result[k] += of_ma * of_ar[k > distance ? k - distance : distance - k];
    }
  }
  return result;
}

double exact_deviance(const Arima& arima, ManySeries w) {
  std::size_t longest = 0;
  for (const std::span<const double> each : w) longest = std::max(longest, each.size());
  const std::vector<double> covariances = autocovariances(arima, static_cast<Index>(longest) + 1);
  if (covariances.empty()) return infinite;
  std::vector<double> weights, before;  // of all rows before, the oldest first, in the best prediction of a row
  double variance = covariances[0], squares = 0.0, logs = 0.0, count = 0.0;
  for (std::size_t t = 0; t < longest; ++t) {
    if (!(variance > 0.0)) return infinite;
    for (const std::span<const double> each : w) {
      if (t >= each.size()) continue;
      double error = each[t] - arima.mean;
      for (std::size_t k = 0; k < t; ++k) error -= weights[k] * (each[k] - arima.mean);
      squares += error * error / variance;
      logs += std::log(variance);
      ++count;
    }
    double partial = covariances[t + 1];
    for (std::size_t k = 0; k < t; ++k) partial -= weights[k] * covariances[k + 1];
    partial /= variance;
    before.swap(weights);
    weights.assign(t + 1, partial);
    for (std::size_t k = 1; k <= t; ++k) weights[k] = before[k - 1] - partial * before[t - k];
    variance *= 1.0 - partial * partial;
  }
  return count > 0.0 ? log_likelihood_part(squares, count) + logs : infinite;
}

double conditional_deviance(const Arima& arima, ManySeries w) {
  const auto terms_of = [](const LagPolynomial& polynomial) {
    std::vector<std::pair<std::size_t, double>> terms;
    for (std::size_t k = 1; k < polynomial.size(); ++k) {
      if (polynomial[k] != 0.0) terms.emplace_back(k, polynomial[k]);
    }
    return terms;
  };
  const auto ar = terms_of(arima.ar), ma = terms_of(arima.ma);
  double squares = 0.0, count = 0.0;
  std::vector<double> errors;
  for (const std::span<const double> each : w) {
    const std::size_t first = std::min(arima.ar.size() - 1, each.size() / 3);
    errors.assign(each.size(), 0.0);
    for (std::size_t t = first; t < each.size(); ++t) {
      double error = each[t] - arima.mean;
      for (const auto& [lag, weight] : ar) error += lag <= t ? weight * (each[t - lag] - arima.mean) : 0.0;
      for (const auto& [lag, weight] : ma) error -= lag <= t ? weight * errors[t - lag] : 0.0;
      errors[t] = error;
      squares += error * error;
      ++count;
    }
  }
  return count > 0.0 ? log_likelihood_part(squares, count) : infinite;
}

std::optional<LinearForecast> forecast_of(const Arima& arima, Index lags, Index horizon) {
  const auto rows = static_cast<std::size_t>(lags), ahead = static_cast<std::size_t>(horizon);
  const LagPolynomial p = difference_polynomial(arima.orders);
  const std::size_t known = rows - (p.size() - 1);  // differences
  // Weights of these differences in forecasts of differences: least squares by their autocovariances.
  const std::vector<double> covariances = autocovariances(arima, static_cast<Index>(known + ahead));
  if (covariances.empty()) return std::nullopt;
  std::vector<double> gram(known * known), weights(known * ahead);
  for (std::size_t i = 0; i < known; ++i) {
    for (std::size_t j = 0; j <= i; ++j) gram[i * known + j] = covariances[i - j];
    for (std::size_t h = 0; h < ahead; ++h) weights[i * ahead + h] = covariances[i + h + 1];
  }
  if (!factor_symmetric(gram, static_cast<Index>(known))) return std::nullopt;
  solve_factored(gram, static_cast<Index>(known), weights, horizon);
  // Values ahead as sums of known rows, newest first, and a constant: each from its difference and what is before it.
  LinearForecast forecast{.lags = lags, .horizon = horizon, .weights = {}, .bias = {}};
  forecast.weights.assign(rows * ahead, 0.0);
  forecast.bias.assign(ahead, 0.0);
  for (std::size_t h = 0; h < ahead; ++h) {
    double sum = 0.0;
    for (std::size_t j = 0; j < known; ++j) {
      const double weight = weights[j * ahead + h];
      sum += weight;
      for (std::size_t k = 0; k < p.size(); ++k) forecast.weights[(j + k) * ahead + h] += weight * p[k];
    }
    forecast.bias[h] = arima.mean * (1.0 - sum);
    for (std::size_t k = 1; k < p.size(); ++k) {
      if (k > h) {
        forecast.weights[(k - h - 1) * ahead + h] -= p[k];
        continue;
      }
      for (std::size_t row = 0; row < rows; ++row)
        forecast.weights[row * ahead + h] -= p[k] * forecast.weights[row * ahead + h - k];
      forecast.bias[h] -= p[k] * forecast.bias[h - k];
    }
  }
  return forecast;
}

}  // namespace penstock::training
