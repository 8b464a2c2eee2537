#include "forecast/linear/smoothing_fit.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/algebra/nelder_mead.h"
#include "base/parallel_tasks.h"
#include "forecast/linear/origins.h"

namespace penstock::training {

namespace {

constexpr Index most_lags = 512;
constexpr Index fewest_lags = 8;
constexpr Index rows_seen = 48;  // at most, as far as a season needs no more
constexpr Index seasons_seen = 6;
constexpr Index most_fitted = 1200;          // that constants are fitted to, the latest of a series ...
constexpr Index most_fitted_of_many = 6000;  // ... and of all
// The trend takes little of each error: one that follows the last few changes goes astray over a whole horizon.
constexpr double quickest_trend = 0.2;
constexpr double least_damping = 0.8, most_damping = 0.98;
constexpr double clearly_likelier = 4.0;  // difference of Akaike's criterion

double between_zero_and_one(double x) { return 1.0 / (1.0 + std::exp(-x)); }

enum class Trend { none, steady, changing, damped, growing };  // a steady one is the same in all rows

/// A kind of smoothing, whose constants are numbers without bounds to the search.
struct Form {
  Trend trend;
  Index period;
  double zero = 0.0, percent = 0.0;  // where growth counts from, and what it may be a row

  bool changes() const { return trend == Trend::changing || trend == Trend::damped; }
  bool damped() const { return trend == Trend::damped; }
  bool grows() const { return trend == Trend::growing; }
  Index constants() const { return static_cast<Index>(begin().size()); }
  std::vector<double> begin() const {
    std::vector<double> numbers = {0.0};
    if (changes()) numbers.push_back(-2.0);
    if (damped()) numbers.push_back(1.0);
    if (grows()) numbers.push_back(percent);
    if (period > 1) numbers.push_back(-2.0);
    return numbers;
  }
  Smoothing of(const std::vector<double>& numbers) const {
    Smoothing result{.has_trend = trend == Trend::steady || changes(), .period = period, .zero = zero};
    auto number = numbers.begin();
    result.level = between_zero_and_one(*number++);
    if (changes()) result.trend = std::min(result.level, quickest_trend * between_zero_and_one(*number++));
    if (damped()) result.damping = least_damping + (most_damping - least_damping) * between_zero_and_one(*number++);
    if (grows()) result.growth = std::exp(0.01 * *number++);
    if (period > 1) result.season = (1.0 - result.level) * between_zero_and_one(*number);
    return result;
  }
};

/// The latest rows of series, or of every so many-th of a great many; those with no more rows than a state has numbers
/// say nothing.
std::vector<std::span<const double>> rows_to_fit(ManySeries z, Index states) {
  const auto stride = static_cast<std::size_t>(std::max<Index>(1, rows_of(z) / most_fitted_of_many));
  std::vector<std::span<const double>> result;
  for (std::size_t i = 0; i < z.size(); i += stride) {
    if (static_cast<Index>(z[i].size()) <= states + 1) continue;
    result.push_back(z[i].last(std::min(z[i].size(), static_cast<std::size_t>(most_fitted))));
  }
  return result;
}

/// Sums of squares of errors by distance, and how many there are.
struct Squares {
  std::vector<double> sums, counts;

  explicit Squares(Index horizon)
      : sums(static_cast<std::size_t>(horizon), 0.0), counts(static_cast<std::size_t>(horizon), 0.0) {}
  double log_mean(std::size_t distance) const {
    return std::log(std::max(sums[distance] / counts[distance], std::numeric_limits<double>::min()));
  }
};

/// Adds the errors of all distances; false if rows leave the first state open.
bool add_squares(const Smoothing& smoothing, std::span<const double> z, Squares& squares) {
  const auto rows = static_cast<Index>(z.size()), horizon = static_cast<Index>(squares.sums.size());
  const FirstState first(smoothing, rows);
  if (!first.is_solvable()) return false;
  SmoothingState from_zeros(smoothing);
  std::vector<double> errors;
  for (Index row = 0; row < rows; ++row) errors.push_back(from_zeros.see(smoothing, z[row] - smoothing.zero));
  const std::vector<double> numbers = first.solve(errors);
  SmoothingState state(smoothing);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    state.add(numbers[i], SmoothingState(smoothing, static_cast<Index>(i)));
  }
  std::vector<Ahead> aheads;
  for (Index h = 0; h < horizon; ++h) aheads.push_back((h == 0 ? Ahead() : aheads.back()).next(smoothing));
  for (Index row = 0; row < rows; ++row) {
    for (Index h = 0; h < horizon && row + h < rows; ++h) {
      const double error = z[row + h] - smoothing.zero - state.expected(h, aheads[h]);
      squares.sums[h] += error * error;
      ++squares.counts[h];
    }
    state.see(smoothing, z[row] - smoothing.zero);
  }
  return true;
}

/// Half the logarithm of the errors of the next row, which say most, and half the mean of those of all distances, which
/// are what is asked for.
double criterion(const Squares& squares) {
  constexpr double fewest = 8.0;
  double sum = 0.0, distances = 0.0;
  for (std::size_t h = 0; h < squares.sums.size() && (h == 0 || squares.counts[h] >= fewest); ++h) {
    sum += squares.log_mean(h);
    ++distances;
  }
  return 0.5 * squares.log_mean(0) + 0.5 * sum / distances;
}

std::optional<FittedSmoothing> fit(ManySeries all, const Form& form, Index horizon) {
  const Index states = form.of(form.begin()).states();
  const auto z = rows_to_fit(all, states);
  const auto n = static_cast<double>(rows_of(z));
  const double k =
      static_cast<double>(form.constants() + 1) + static_cast<double>(states) * static_cast<double>(z.size());
  if (!(n > k + 3.0)) return std::nullopt;
  const auto squares_of = [&](const Smoothing& smoothing, Index distances) -> std::optional<Squares> {
    Squares squares(distances);
    for (const std::span<const double> each : z) {
      if (!add_squares(smoothing, each, squares)) return std::nullopt;
    }
    return squares;
  };
  const auto to_minimise = [&](const std::vector<double>& numbers) {
    const auto squares = squares_of(form.of(numbers), horizon);
    if (!squares) return std::numeric_limits<double>::infinity();
    // Where constants hardly matter they stay where they began, far from bounds.
    double drawn = 0.0;
    constexpr double pull = 0.002;
    for (const double number : numbers) drawn += pull * number * number;
    return n * criterion(*squares) + drawn;
  };
  constexpr double step = 1.5, tolerance = 1e-5;
  constexpr int evaluations = 60;  // for each constant
  const auto found =
      minimise(to_minimise, form.begin(), step, evaluations * static_cast<int>(form.constants()), tolerance);
  const auto squares = squares_of(form.of(found), 1);
  if (!squares) return std::nullopt;
  const double information = n * squares->log_mean(0) + 2.0 * k * n / (n - k - 1.0);
  return FittedSmoothing{form.of(found), information};
}

double least_information(const std::vector<FittedSmoothing>& all) {
  double least = std::numeric_limits<double>::infinity();
  for (const FittedSmoothing& each : all) least = std::min(least, each.information);
  return least;
}

}  // namespace

std::optional<Index> smoothing_window(Index rows, Index period) {
  // Half of the rows, so that the other half says how well the window does; of very few rows as many as it takes.
  const Index known = std::max(rows / 2 - 1, std::min(rows - 2, fewest_lags));
  const Index lags = std::min({most_lags, known, std::max(rows_seen, period > 1 ? seasons_seen * period : 0)});
  if (lags < std::max(2 * period, fewest_lags) || period > longest_smoothed_period) return std::nullopt;
  return lags;
}

std::vector<FittedSmoothing> fit_smoothings(ManySeries z, Index period, Index horizon) {
  std::vector<FittedSmoothing> result;
  if (all_equal(z)) return result;
  for (const Trend trend : {Trend::none, Trend::steady, Trend::changing, Trend::damped}) {
    if (const auto fitted = fit(z, {trend, period}, horizon)) result.push_back(*fitted);
  }
  return result;
}

std::optional<FittedSmoothing> fit_growing_smoothing(ManySeries z, double zero, Index horizon) {
  double logs = 0.0, steps = 0.0;
  for (const std::span<const double> each : z) {
    if (std::ranges::any_of(each, [&](double value) { return !(value > zero); })) return std::nullopt;
    if (each.empty()) continue;
    logs += std::log((each.back() - zero) / (each.front() - zero));
    steps += static_cast<double>(each.size() - 1);
  }
  if (all_equal(z) || !(steps > 0.0)) return std::nullopt;
  return fit(z, {.trend = Trend::growing, .period = 1, .zero = zero, .percent = 100.0 * logs / steps}, horizon);
}

std::optional<LinearForecast> fit_mean_smoothing(ManySeries z, Index period, Index lags, Index horizon,
                                                 std::optional<double> zero) {
  std::vector<FittedSmoothing> all = fit_smoothings(z, 1, horizon);
  if (period > 1) std::ranges::copy(fit_smoothings(z, period, horizon), std::back_inserter(all));
  if (all.empty()) return std::nullopt;
  const double least = least_information(all);
  constexpr double counts = 0.01;
  MeanForecast mean(horizon);
  const auto take = [&](double weight, const Smoothing& smoothing) {
    if (weight >= counts && lags > smoothing.states()) mean.add(weight, smooth(smoothing, lags, horizon));
  };
  for (const FittedSmoothing& each : all) take(std::exp(0.5 * (least - each.information)), each.smoothing);
  const auto growing = zero ? fit_growing_smoothing(z, *zero, horizon) : std::nullopt;
  // Half of its share w / (w + sum); w may be infinite.
  const double sum = mean.sum();
  if (growing) take(sum / (1.0 + 2.0 * sum * std::exp(0.5 * (growing->information - least))), growing->smoothing);
  return mean.take();
}

LikeliestPeriod likeliest_period(ManySeries z, const std::vector<Index>& periods, Index horizon, int threads) {
  std::vector<Index> all = {1};
  std::ranges::copy_if(periods, std::back_inserter(all),
                       [](Index period) { return period <= longest_smoothed_period; });
  std::vector<double> information(all.size());
  side_by_side(threads, all.size(),
               [&](std::size_t i) { information[i] = least_information(fit_smoothings(z, all[i], horizon)); });
  LikeliestPeriod likeliest;
  for (std::size_t i = 1; i < all.size(); ++i) {
    const double by = information.front() - information[i];
    if (by > std::max(clearly_likelier, likeliest.by)) likeliest = {.rows = all[i], .by = by};
  }
  return likeliest;
}

}  // namespace penstock::training
