#include "data/series/cycle_test.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <numeric>
#include <optional>

#include "base/algebra/cholesky.h"

namespace penstock::training {
namespace {

constexpr Index most_waves = 6;           // sines and cosines of a cycle, its overtones among them
constexpr Index rows_for_a_column = 3;    // of the regression, at least
constexpr Index most_equations = 100000;  // a sample of the rows beyond that
constexpr double false_alarms = 0.001;    // chance that a cycle is seen where there is none

/// Probability that an F-distributed variable exceeds f, by Paulson's normal approximation (Annals of Mathematical
/// Statistics 13, 1942).
double exceeds_by_chance(double f, double numerator, double denominator) {
  const double root = std::cbrt(f), a = 2.0 / (9.0 * numerator), b = 2.0 / (9.0 * denominator);
  return 0.5 * std::erfc(((1.0 - b) * root - (1.0 - a)) / std::sqrt(b * root * root + a) / std::numbers::sqrt2);
}

/// Columns of the regression: a constant, the value before, some changes before that, then the waves of each cycle.
struct WaveRegression {
  Index lags = 0;
  std::vector<Index> waves;  // of each cycle

  Index first_wave() const { return 2 + lags; }
  Index columns() const { return first_wave() + 2 * std::accumulate(waves.begin(), waves.end(), Index{0}); }
};

/// A sum of squares and products, from which regressions on some of the columns follow.
class NormalEquations {
 public:
  explicit NormalEquations(Index columns)
      : columns_(columns), products_(static_cast<std::size_t>(columns * columns)), with_value_(columns) {}

  void add(std::span<const double> x, double y) {
    for (Index i = 0; i < columns_; ++i) {
      for (Index k = 0; k <= i; ++k) products_[i * columns_ + k] += x[i] * x[k];
      with_value_[i] += x[i] * y;
    }
    squares_ += y * y;
  }

  struct Fit {
    std::vector<double> weights;
    double squares = 0.0;  // of what is left
  };
  /// Without the columns from `first` up to `last`; nothing if those that are left say nothing.
  std::optional<Fit> without(Index first, Index last) const {
    std::vector<Index> kept;
    for (Index i = 0; i < columns_; ++i) {
      if (i < first || i >= last) kept.push_back(i);
    }
    const auto n = static_cast<Index>(kept.size());
    std::vector<double> factor(static_cast<std::size_t>(n * n));
    Fit fit{std::vector<double>(static_cast<std::size_t>(n)), squares_};
    // The past of a series that only repeats itself is a sum of waves, and there is no telling them apart.
    constexpr double ridge = 1e-9;
    for (Index i = 0; i < n; ++i) {
      for (Index k = 0; k <= i; ++k) factor[i * n + k] = products_[kept[i] * columns_ + kept[k]];
      factor[i * n + i] *= 1.0 + ridge;
      fit.weights[i] = with_value_[kept[i]];
    }
    if (!factor_symmetric(factor, n)) return std::nullopt;
    solve_factored(factor, n, fit.weights);
    for (Index i = 0; i < n; ++i) fit.squares -= fit.weights[i] * with_value_[kept[i]];
    return fit;
  }
  double squares() const { return squares_; }

 private:
  Index columns_;
  std::vector<double> products_;  // [columns, columns], the lower triangle
  std::vector<double> with_value_;
  double squares_ = 0.0;
};

class CycleTest {
 public:
  CycleTest(const DatedRows& rows, std::span<const double> cycles) : rows_(rows), cycles_(cycles) {
    Index longest = 0, count = 0;
    for (const Segment& segment : rows.segments) {
      longest = std::max(longest, segment.training_rows());
      count += segment.training_rows();
    }
    // Schwert's rule. A past as long as the cycle would foretell the cycle itself.
    const auto all = static_cast<double>(longest);
    const double half = *std::ranges::min_element(cycles) / rows.step / 2.0;
    form_.lags = static_cast<Index>(std::min({12.0 * std::pow(all / 100.0, 0.25), all / 8.0, half}));
    for (Index most = most_waves; most >= 1; --most) {
      form_.waves.clear();
      for (const double cycle : cycles) {
        const auto fitting = static_cast<Index>(std::ceil(cycle / rows.step / 2.0)) - 1;  // two rows would be a sign
        form_.waves.push_back(std::clamp<Index>(fitting, 1, most));
      }
      enough_ = form_.columns() * rows_for_a_column <= longest;
      if (enough_) break;
    }
    stride_ = count / most_equations + 1;
  }

  /// For each cycle the least probability, over the targets, that chance alone would show as much.
  std::vector<double> chances() const {
    std::vector<double> least(cycles_.size(), 1.0);
    for (Index target = 0; target < rows_.targets && enough_; ++target) {
      const std::vector<double> own = chances_of(target);
      for (std::size_t i = 0; i < least.size(); ++i) {
        least[i] = std::min(least[i], own[i] * static_cast<double>(rows_.targets));
      }
    }
    return least;
  }

 private:
  template <class Take>
  void each_equation(Index target, const Take& take) const {
    std::vector<double> x(static_cast<std::size_t>(form_.columns()));
    const auto value = [&](Index row) { return static_cast<double>(rows_.values[row * rows_.targets + target]); };
    for (const Segment& segment : rows_.segments) {
      for (Index row = segment.first + form_.lags + 1; row < segment.training_end; row += stride_) {
        if (!rows_.is_known(row, target)) continue;
        x[0] = 1.0;
        x[1] = value(row - 1);
        for (Index lag = 1; lag <= form_.lags; ++lag) x[1 + lag] = value(row - lag) - value(row - lag - 1);
        fill_waves(rows_.seconds[row], x);
        take(row, x, value(row) - value(row - 1));
      }
    }
  }

  void fill_waves(double seconds, std::vector<double>& x) const {
    auto next = x.begin() + form_.first_wave();
    for (std::size_t i = 0; i < cycles_.size(); ++i) {
      const double angle = 2.0 * std::numbers::pi * std::fmod(seconds / cycles_[i], 1.0);
      for (Index wave = 1; wave <= form_.waves[i]; ++wave) {
        *next++ = std::sin(static_cast<double>(wave) * angle);
        *next++ = std::cos(static_cast<double>(wave) * angle);
      }
    }
  }

  std::vector<double> chances_of(Index target) const {
    std::vector<double> chances(cycles_.size(), 1.0);
    NormalEquations equations(form_.columns());
    each_equation(target, [&](Index, std::span<const double> x, double y) { equations.add(x, y); });
    const auto all = equations.without(0, 0);
    if (!all) return chances;
    const Dates found = dates_of(target, all->weights);
    const auto columns = static_cast<double>(form_.columns());
    if (found.dates <= columns) return chances;
    Index first = form_.first_wave();
    for (std::size_t i = 0; i < cycles_.size(); ++i) {
      const Index last = first + 2 * form_.waves[i];
      const auto fewer = equations.without(first, last);
      // The residuals of a series that follows its cycle to the last digit are rounding errors.
      const double left = std::max(all->squares, 1e-9 * equations.squares());
      if (fewer && fewer->squares > left) {
        const auto waves = static_cast<double>(last - first);
        const double f = (fewer->squares - left) / waves / (left / (found.rows - columns)) / found.alike;
        chances[i] = exceeds_by_chance(f, waves, found.dates - columns);
      }
      first = last;
    }
    return chances;
  }

  /// How many rows and dates there are, and how many times less a row says because those of one date have something in
  /// common: Moulton's factor of inputs that are the same for all rows of a date, which is 1 of a single series.
  struct Dates {
    double rows = 0.0, dates = 0.0, alike = 1.0;
  };
  Dates dates_of(Index target, const std::vector<double>& weights) const {
    std::map<double, double> sums;
    double squares = 0.0, rows = 0.0;
    each_equation(target, [&](Index row, std::span<const double> x, double y) {
      const double left = y - std::inner_product(x.begin(), x.end(), weights.begin(), 0.0);
      sums[rows_.seconds[row]] += left;
      squares += left * left;
      ++rows;
    });
    double of_dates = 0.0;
    for (const auto& [date, sum] : sums) of_dates += sum * sum;
    return {rows, static_cast<double>(sums.size()), squares > 0.0 ? std::max(1.0, of_dates / squares) : 1.0};
  }

  const DatedRows& rows_;
  std::span<const double> cycles_;
  WaveRegression form_;
  Index stride_ = 1;
  bool enough_ = false;
};

}  // namespace

std::vector<bool> cycles_shown(const DatedRows& rows, std::span<const double> cycles) {
  if (cycles.empty()) return {};
  std::vector<bool> shown;
  for (const double chance : CycleTest(rows, cycles).chances()) shown.push_back(chance < false_alarms);
  return shown;
}

}  // namespace penstock::training
