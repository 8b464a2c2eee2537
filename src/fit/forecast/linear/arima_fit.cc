#include "forecast/linear/arima_fit.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "base/algebra/nelder_mead.h"
#include "forecast/linear/origins.h"

namespace penstock::training {

namespace {

using Numbers = std::vector<double>;

// That series have. Box and Jenkins (1970) ask for fifty; of a thousand, regressions on many lags know as much.
constexpr Index fewest_arima_rows = 50, most_arima_rows = 1000;
constexpr Index longest_arima_period = 24;
constexpr Index rows_read = 48, seasons_read = 8;
constexpr std::size_t most_rows_fitted = 400;  // of each series, the latest: the likelihood takes their square ...
constexpr std::size_t most_series_fitted = 12;
constexpr Index most_terms = 3, most_seasonal_terms = 2;
constexpr double unlikely = std::numeric_limits<double>::infinity();

double mean_of(std::span<const double> z) {
  return std::accumulate(z.begin(), z.end(), 0.0) / static_cast<double>(z.size());
}

double variance_of(std::span<const double> z) {
  const double mean = mean_of(z);
  double sum = 0.0;
  for (const double value : z) sum += (value - mean) * (value - mean);
  return sum / static_cast<double>(z.size());
}

/// Returns whether the level of a series moves, at 5 %: its partial sums are larger than those of a stationary series.
bool level_moves(std::span<const double> z) {
  constexpr double critical = 0.463;
  const auto n = static_cast<double>(z.size());
  const double mean = mean_of(z);
  const auto bandwidth = static_cast<std::size_t>(3.0 * std::sqrt(n) / 13.0);
  double partial = 0.0, squares = 0.0;
  for (const double value : z) {
    partial += value - mean;
    squares += partial * partial;
  }
  double variance = 0.0;  // in the long run, with the weights of Bartlett
  for (std::size_t lag = 0; lag <= bandwidth && lag < z.size(); ++lag) {
    double product = 0.0;
    for (std::size_t t = lag; t < z.size(); ++t) product += (z[t] - mean) * (z[t - lag] - mean);
    const double weight = 1.0 - static_cast<double>(lag) / static_cast<double>(bandwidth + 1);
    variance += (lag == 0 ? 1.0 : 2.0 * weight) * product / n;
  }
  return variance > 0.0 && squares / (n * n) > critical * variance;
}

/// How much of what a moving mean over a season leaves is seasonal (Wang, Smith and Hyndman, 2006).
double strength_of_season(std::span<const double> z, Index period) {
  const auto s = static_cast<std::size_t>(period), half = s / 2;
  if (z.size() < 2 * s + 1) return 0.0;
  Numbers rest;  // without the trend, from row `half`
  for (std::size_t t = half; t + half < z.size(); ++t) {
    double sum = 0.0;
    for (std::size_t k = t - half; k <= t + half; ++k) {
      sum += (s % 2 == 0 && (k == t - half || k == t + half) ? 0.5 : 1.0) * z[k];
    }
    rest.push_back(z[t] - sum / static_cast<double>(s));
  }
  Numbers sums(s, 0.0), counts(s, 0.0), remainder = rest;
  for (std::size_t t = 0; t < rest.size(); ++t) {
    sums[t % s] += rest[t];
    ++counts[t % s];
  }
  for (std::size_t t = 0; t < rest.size(); ++t) remainder[t] -= sums[t % s] / counts[t % s];
  const double whole = variance_of(rest);
  return whole > 0.0 ? std::max(0.0, 1.0 - variance_of(remainder) / whole) : 0.0;
}

/// Returns whether `is` holds for more than half of the series.
template <class Is>
bool most_are(const std::vector<Numbers>& z, const Is& is) {
  const auto count = std::ranges::count_if(z, is);
  return 2 * count > static_cast<std::ptrdiff_t>(z.size());
}

/// The latest rows of series, of some of them where there are many.
std::vector<Numbers> rows_for_arima(ManySeries z) {
  std::vector<Numbers> result;
  const std::size_t stride = (z.size() + most_series_fitted - 1) / most_series_fitted;
  for (std::size_t i = 0; i < z.size(); i += stride) {
    const auto latest = z[i].last(std::min(z[i].size(), most_rows_fitted));
    result.emplace_back(latest.begin(), latest.end());
  }
  return result;
}

/// Differences of series, as far as they have any, and their spread.
struct Differences {
  Differences(const std::vector<Numbers>& z, const ArimaOrders& orders) {
    for (const Numbers& each : z) {
      Numbers w = differenced(orders, each);
      if (w.size() < 2) continue;
      for (const double value : w) square += value * value;
      rows += static_cast<double>(w.size());
      values.push_back(std::move(w));
    }
    spans = spans_of(values);
    equal = all_equal(spans);
    spread = rows > 0.0 ? std::sqrt(square / rows) : 0.0;
  }

  std::vector<Numbers> values;
  std::vector<std::span<const double>> spans;
  double rows = 0.0, square = 0.0, spread = 0.0;
  bool equal = true;
};

/// Returns the coefficients of least deviance, from a place to begin at.
Numbers least_deviance(const ArimaOrders& orders, const Differences& w, const Numbers& begin, double step,
                       int evaluations_each, double (*deviance)(const Arima&, ManySeries)) {
  if (begin.empty()) return begin;
  constexpr double pull = 0.002, tolerance = 1e-3;  // in units of the deviance
  const auto of = [&](const Numbers& numbers) {
    double drawn = 0.0;  // where coefficients hardly matter they stay near zero
    for (const double number : numbers) drawn += pull * number * number;
    return deviance(arima_of(orders, numbers, w.spread), w.spans) + drawn;
  };
  return minimise(of, begin, step, evaluations_each * static_cast<int>(begin.size()), tolerance);
}

Numbers first_guess(const ArimaOrders& orders, const Differences& w) {
  Numbers numbers(static_cast<std::size_t>(orders.constants()), 0.0);
  if (orders.has_mean && w.spread > 0.0) {
    double sum = 0.0;
    for (const Numbers& each : w.values) sum += std::accumulate(each.begin(), each.end(), 0.0);
    numbers.back() = sum / w.rows / w.spread;
  }
  constexpr double step = 0.5;
  constexpr int evaluations_each = 40;
  return least_deviance(orders, w, numbers, step, evaluations_each, conditional_deviance);
}

/// Search from the best of a few models to better neighbours until there are none.
class OrderSearch {
 public:
  OrderSearch(const std::vector<Numbers>& z, const ArimaOrders& differences)
      : w_(z, differences), differences_(differences) {
    mean_possible_ = differences.plain.difference + differences.seasonal.difference <= 1;
    seasonal_ = differences.period > 1;
  }

  std::optional<ArimaOrders> best() {
    if (w_.equal) return std::nullopt;
    for (const bool mean : {true, false}) {
      if (mean && !mean_possible_) continue;
      for (const auto& [ar, ma] : {std::pair{2, 2}, {0, 0}, {1, 0}, {0, 1}}) {
        ArimaOrders orders = differences_;
        orders.plain.ar = ar;
        orders.plain.ma = ma;
        orders.seasonal.ar = seasonal_ ? std::min(ar, 1) : 0;
        orders.seasonal.ma = seasonal_ ? std::min(ma, 1) : 0;
        orders.has_mean = mean;
        consider(orders);
      }
    }
    while (best_ && step()) {
    }
    return best_;
  }

 private:
  bool step() {
    const ArimaOrders from = *best_;
    for (ArimaTerms ArimaOrders::*terms : {&ArimaOrders::plain, &ArimaOrders::seasonal}) {
      for (Index ar = -1; ar <= 1; ++ar) {
        for (Index ma = -1; ma <= 1; ++ma) {
          ArimaOrders near = from;
          (near.*terms).ar += ar;
          (near.*terms).ma += ma;
          consider(near);
        }
      }
    }
    ArimaOrders other_mean = from;
    other_mean.has_mean = !from.has_mean;
    consider(other_mean);
    return from != *best_;
  }

  void consider(const ArimaOrders& orders) {
    const auto& [plain, seasonal, period, has_mean] = orders;
    const Index most_of_season = seasonal_ ? most_seasonal_terms : 0;
    if (std::min({plain.ar, plain.ma, seasonal.ar, seasonal.ma}) < 0 || std::max(plain.ar, plain.ma) > most_terms ||
        std::max(seasonal.ar, seasonal.ma) > most_of_season || (has_mean && !mean_possible_)) {
      return;
    }
    if (!known_.insert(orders).second) return;
    const double information = information_of(orders);
    if (!(information < least_)) return;
    least_ = information;
    best_ = orders;
  }

  /// Akaike's criterion, corrected, at coefficients that are not quite the likeliest.
  double information_of(const ArimaOrders& orders) const {
    const double k = static_cast<double>(orders.constants()) + 1.0, n = w_.rows;
    if (!(n > k + 3.0)) return unlikely;
    const Arima arima = arima_of(orders, first_guess(orders, w_), w_.spread);
    return exact_deviance(arima, w_.spans) + 2.0 * k * n / (n - k - 1.0);
  }

  Differences w_;
  ArimaOrders differences_;
  bool mean_possible_, seasonal_;
  std::set<ArimaOrders> known_;
  std::optional<ArimaOrders> best_;
  double least_ = unlikely;
};

}  // namespace

std::optional<Index> arima_window(Index rows, Index period) {
  if (rows < fewest_arima_rows || rows > most_arima_rows || period > longest_arima_period) return std::nullopt;
  const Index lags = std::min(rows / 2 - 1, std::max(rows_read, period > 1 ? seasons_read * period : 0));
  return lags < 2 * period + 1 ? std::nullopt : std::optional(lags);
}

ArimaOrders choose_differences(ManySeries z, Index period) {
  constexpr double plain_to_see = 0.64;
  ArimaOrders orders{.plain = {}, .seasonal = {}, .period = period};
  std::vector<Numbers> rows = rows_for_arima(z);
  if (period > 1 &&
      most_are(rows, [&](const Numbers& each) { return strength_of_season(each, period) > plain_to_see; })) {
    orders.seasonal.difference = 1;
  }
  const Differences w(rows, orders);
  const auto moves = [](const Numbers& each) { return level_moves(each); };
  if (!w.equal && most_are(w.values, moves)) orders.plain.difference = 1;
  return orders;
}

std::optional<ArimaOrders> choose_orders(ManySeries z, Index period) {
  return OrderSearch(rows_for_arima(z), choose_differences(z, period)).best();
}

std::optional<Arima> fit_arima(ManySeries z, const ArimaOrders& orders) {
  const Differences w(rows_for_arima(z), orders);
  const auto enough = static_cast<double>(orders.constants()) + 3.0;
  if (w.equal || !(w.rows > enough)) return std::nullopt;
  constexpr double step = 0.2;
  constexpr int evaluations_each = 30;
  const Numbers numbers = least_deviance(orders, w, first_guess(orders, w), step, evaluations_each, exact_deviance);
  return arima_of(orders, numbers, w.spread);
}

}  // namespace penstock::training
