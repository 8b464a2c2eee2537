#include "plan/cost_fit.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace penstock::plan {
namespace {

using Vector = std::vector<double>;

// Standard deviations of logarithms: errors of estimates and clocks with the right costs; differences between problems
// that plans do not explain; errors of costs that come from another machine or an older version.
constexpr double kOfTime = 0.1, kOfWork = 0.3, kOfCost = 0.5;

/// Largest change of the logarithm of a cost in one fit: disturbed measurements must not change costs without limit.
const double kMostMove = std::log(4.0);

double square(double value) { return value * value; }

/// The fit in logarithms. Parameters are those of the costs that some time depends on, then one per work.
class Fit {
 public:
  Fit(Vector costs, const std::vector<MeasuredTime>& measured) : costs_(std::move(costs)) {
    for (const MeasuredTime& time : measured) {
      if (time.microseconds > 0 && time.estimate(costs_) > 0) times_.push_back(&time);
    }
    for (const MeasuredTime* const time : times_) works_ = std::max(works_, time->work + 1);
    for (std::size_t i = 0; i < costs_.size(); ++i) {
      if (std::ranges::any_of(times_, [&](const MeasuredTime* time) { return slope(*time, costs_, i) != 0; })) {
        active_.push_back(i);
      }
    }
  }

  bool empty() const { return active_.empty(); }
  std::size_t parameters() const { return active_.size() + works_; }

  Vector costs(const Vector& parameters) const {
    Vector all = costs_;
    for (std::size_t j = 0; j < active_.size(); ++j) all[active_[j]] *= std::exp(parameters[j]);
    return all;
  }

  /// Returns the logarithms of time over estimate; a large number if there is no estimate any more.
  Vector residuals(const Vector& parameters) const {
    const Vector now = costs(parameters);
    Vector all;
    for (const MeasuredTime* const time : times_) {
      const double estimate = time->estimate(now);
      all.push_back(estimate > 0 ? std::log(time->microseconds / estimate) - parameters[active_.size() + time->work]
                                 : kNone);
    }
    return all;
  }

  /// Returns the objective that is minimised.
  double objective(const Vector& parameters) const {
    double sum = 0;
    for (const double residual : residuals(parameters)) sum += square(residual / kOfTime);
    for (std::size_t j = 0; j < parameters.size(); ++j) sum += square(parameters[j] / spread_of(j));
    return sum;
  }

  /// Returns the step to the solution of the normal equations, linearised at these parameters.
  Vector step(const Vector& parameters) const {
    const std::size_t size = parameters.size();
    const Vector now = costs(parameters), off = residuals(parameters);
    std::vector<Vector> matrix(size, Vector(size));
    Vector right(size);
    for (std::size_t j = 0; j < size; ++j) {
      matrix[j][j] = 1 / square(spread_of(j));
      right[j] = -parameters[j] / square(spread_of(j));
    }
    for (std::size_t t = 0; t < times_.size(); ++t) {
      const Vector row = slopes(*times_[t], now);
      for (std::size_t j = 0; j < size; ++j) {
        if (row[j] == 0) continue;
        right[j] += row[j] * off[t] / square(kOfTime);
        for (std::size_t k = 0; k < size; ++k) matrix[j][k] += row[j] * row[k] / square(kOfTime);
      }
    }
    return solve(std::move(matrix), std::move(right));
  }

  /// Returns parameters after a fraction of a step, within the limits of costs.
  Vector moved(Vector from, const Vector& step, double share) const {
    for (std::size_t j = 0; j < from.size(); ++j) {
      from[j] += share * step[j];
      if (j < active_.size()) from[j] = std::clamp(from[j], -kMostMove, kMostMove);
    }
    return from;
  }

  /// Returns the error of the planner's estimates, without the factors of single works.
  double off(Vector parameters) const {
    std::fill(parameters.begin() + static_cast<std::ptrdiff_t>(active_.size()), parameters.end(), 0.0);
    double sum = 0;
    for (const double residual : residuals(parameters)) sum += square(residual);
    return std::exp(std::sqrt(sum / static_cast<double>(times_.size())));
  }

  /// Returns the sum, over works, of the logarithm of the measured time of the plan with the best estimate.
  double time_of_choices(const Vector& parameters) const {
    const Vector now = costs(parameters);
    Vector least(works_, std::numeric_limits<double>::infinity()), taken(works_);
    for (const MeasuredTime* const time : times_) {
      const double estimate = time->estimate(now);
      if (estimate <= 0 || estimate >= least[time->work]) continue;
      least[time->work] = estimate;
      taken[time->work] = std::log(time->microseconds);
    }
    double sum = 0;
    for (const double one : taken) sum += one;
    return sum;
  }

 private:
  static constexpr double kNone = 100;

  double spread_of(std::size_t parameter) const { return parameter < active_.size() ? kOfCost : kOfWork; }

  /// Returns the derivative of the logarithm of an estimate with respect to the logarithm of a cost.
  static double slope(const MeasuredTime& time, Vector costs, std::size_t cost) {
    constexpr double aside = 0.02;
    const double here = costs[cost];
    const auto estimate = [&](double moved) {
      costs[cost] = here * std::exp(moved);
      return time.estimate(costs);
    };
    const double less = estimate(-aside), more = estimate(aside);
    return less > 0 && more > 0 ? std::log(more / less) / (2 * aside) : 0;
  }

  Vector slopes(const MeasuredTime& time, const Vector& now) const {
    Vector row;
    for (const std::size_t cost : active_) row.push_back(slope(time, now, cost));
    row.resize(parameters());
    row[active_.size() + time.work] = 1;
    return row;
  }

  /// Solves by Cholesky decomposition. The matrix is positive definite, because every parameter has a prior.
  static Vector solve(std::vector<Vector> matrix, Vector right) {
    const std::size_t size = right.size();
    for (std::size_t j = 0; j < size; ++j) {
      for (std::size_t k = 0; k < j; ++k) {
        for (std::size_t i = j; i < size; ++i) matrix[i][j] -= matrix[i][k] * matrix[j][k];
      }
      const double root = std::sqrt(matrix[j][j]);
      for (std::size_t i = j; i < size; ++i) matrix[i][j] /= root;
    }
    for (std::size_t i = 0; i < size; ++i) {
      for (std::size_t k = 0; k < i; ++k) right[i] -= matrix[i][k] * right[k];
      right[i] /= matrix[i][i];
    }
    for (std::size_t i = size; i-- > 0;) {
      for (std::size_t k = i + 1; k < size; ++k) right[i] -= matrix[k][i] * right[k];
      right[i] /= matrix[i][i];
    }
    return right;
  }

  Vector costs_;
  std::vector<const MeasuredTime*> times_;
  std::vector<std::size_t> active_;
  std::size_t works_ = 0;
};

/// Minimises by Gauss-Newton. Each step is halved until the objective falls, since estimates jump with the shape of a
/// plan.
Vector solved(const Fit& fit) {
  constexpr int steps = 8, halvings = 6;
  constexpr double enough = 1e-4;
  Vector at(fit.parameters());
  double value = fit.objective(at);
  for (int i = 0; i < steps; ++i) {
    const Vector step = fit.step(at);
    double share = 1;
    for (int halved = 0;; ++halved, share /= 2) {
      if (halved == halvings) return at;
      Vector next = fit.moved(at, step, share);
      const double lower = fit.objective(next);
      if (!(lower < value)) continue;
      const bool done = value - lower < enough * value;
      at = std::move(next), value = lower;
      if (done) return at;
      break;
    }
  }
  return at;
}

}  // namespace

CostFit fit_costs(std::vector<double> costs, const std::vector<MeasuredTime>& measured) {
  const Fit fit(costs, measured);
  CostFit result{.costs = std::move(costs)};
  if (fit.empty()) return result;
  const Vector before(fit.parameters()), after = solved(fit);
  result.off_before = result.off_after = fit.off(before);
  constexpr double rounding = 1e-9;
  if (fit.time_of_choices(after) > fit.time_of_choices(before) + rounding) return result;
  result.costs = fit.costs(after);
  result.off_after = fit.off(after);
  return result;
}

}  // namespace penstock::plan
