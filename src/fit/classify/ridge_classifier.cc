#include "classify/ridge_classifier.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

#include "base/algebra/inverse_factor.h"
#include "ops/product/matmul.h"
#include "penstock/stop.h"

namespace penstock::training {

namespace {

using Reals = std::vector<double>;

/// Features less their means, over their deviations.
struct Standard {
  Index rows, features;
  std::vector<float> x;     // [n, F]
  Reals means, deviations;  // [F]

  Standard(std::span<const float> raw, Index count)
      : rows(static_cast<Index>(raw.size()) / count), features(count), x(raw.begin(), raw.end()) {
    const auto width = static_cast<std::size_t>(features);
    means.assign(width, 0.0);
    deviations.assign(width, 0.0);
    for (std::size_t i = 0; i < x.size(); ++i) means[i % width] += static_cast<double>(x[i]);
    for (double& mean : means) mean /= static_cast<double>(rows);
    for (std::size_t i = 0; i < x.size(); ++i) {
      deviations[i % width] += std::pow(static_cast<double>(x[i]) - means[i % width], 2.0);
    }
    // For features that are all but constant, only rounding errors would be left, many times larger.
    constexpr double least = 1e-5;
    for (std::size_t f = 0; f < width; ++f) {
      const double deviation = std::sqrt(deviations[f] / static_cast<double>(rows));
      deviations[f] = deviation > least * (std::abs(means[f]) + least) ? deviation : 0.0;
    }
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t f = i % width;
      x[i] = deviations[f] > 0.0 ? static_cast<float>((static_cast<double>(x[i]) - means[f]) / deviations[f]) : 0.0f;
    }
  }
};

/// op(a) op(b) of [m, k] and [k, n], all row by row.
std::vector<float> product(Index m, Index n, Index k, ops::Matrix<float> a, ops::Matrix<float> b,
                           const Execution& execution) {
  std::vector<float> c(static_cast<std::size_t>(m * n));
  ops::matmul<float>({m, n, k}, a, b, {c.data(), n}, execution);
  return c;
}

/// y [n, m] -> (A + penalty)^-1 y, by that inverse.
Reals solve(const Reals& inverse, Index n, const Reals& y, Index m) {
  Reals half(y.size(), 0.0), whole(y.size(), 0.0);
  for (Index i = 0; i < n; ++i) {
    for (Index k = 0; k <= i; ++k) {
      for (Index c = 0; c < m; ++c) half[i * m + c] += inverse[i * n + k] * y[k * m + c];
    }
  }
  for (Index i = 0; i < n; ++i) {
    for (Index k = 0; k <= i; ++k) {
      for (Index c = 0; c < m; ++c) whole[k * m + c] += inverse[i * n + k] * half[i * m + c];
    }
  }
  return whole;
}

/// Regressions of targets y [n, m], which have no mean, with one penalty after another.
class Ridge {
 public:
  Ridge(const Standard& x, const Reals& y, Index outputs, const Execution& execution)
      : x_(x), y_(y), n_(x.rows), width_(x.features), outputs_(outputs), dual_(n_ <= width_), execution_(execution) {
    const ops::Matrix<float> plain{x.x.data(), width_}, turned{x.x.data(), width_, true};
    const std::vector<float> gram = dual_ ? product(n_, n_, width_, plain, turned, execution)
                                          : product(width_, width_, n_, turned, plain, execution);
    gram_.assign(gram.begin(), gram.end());
    if (dual_) return;
    products_.assign(static_cast<std::size_t>(width_ * outputs_), 0.0);
    for (Index i = 0; i < n_; ++i) {
      stop_if_asked();
      for (Index f = 0; f < width_; ++f) {
        for (Index c = 0; c < outputs_; ++c) {
          products_[f * outputs_ + c] += static_cast<double>(x.x[i * width_ + f]) * y[i * outputs_ + c];
        }
      }
    }
  }

  struct Fit {
    Reals weights;    // [F, m]
    Reals predicted;  // [n, m]: of each row by the others
  };

  Fit fit(double penalty) const {
    stop_if_asked();
    const Index size = dual_ ? n_ : width_;
    Reals inverse = gram_;
    for (Index i = 0; i < size; ++i) inverse[i * size + i] += penalty;
    if (!invert_factor(inverse, size)) {  // rounding alone may do that: such a penalty is never the best
      std::ranges::fill(inverse, std::numeric_limits<double>::quiet_NaN());
    }
    const Reals solved = solve(inverse, size, dual_ ? y_ : products_, outputs_);
    return dual_ ? dual_fit(inverse, solved, penalty) : primal_fit(inverse, solved, penalty);
  }

 private:
  /// The residual of row i is penalty * solved_i; without the row it is solved_i over the diagonal of (K + penalty)^-1.
  Fit dual_fit(const Reals& inverse, const Reals& solved, double penalty) const {
    Reals diagonal(static_cast<std::size_t>(n_), 0.0);
    for (Index i = 0; i < n_; ++i) {
      for (Index k = 0; k <= i; ++k) diagonal[k] += inverse[i * n_ + k] * inverse[i * n_ + k];
    }
    Fit fit{Reals(static_cast<std::size_t>(width_ * outputs_), 0.0), y_};
    const double of_mean = 1.0 / (penalty * static_cast<double>(n_));  // which was fitted to the row as well
    for (Index i = 0; i < n_; ++i) {
      const double share = std::max(diagonal[i] - of_mean, std::numeric_limits<double>::min());
      for (Index c = 0; c < outputs_; ++c) fit.predicted[i * outputs_ + c] -= solved[i * outputs_ + c] / share;
      for (Index f = 0; f < width_; ++f) {
        for (Index c = 0; c < outputs_; ++c) {
          fit.weights[f * outputs_ + c] += static_cast<double>(x_.x[i * width_ + f]) * solved[i * outputs_ + c];
        }
      }
    }
    return fit;
  }

  /// Fits by the mean leverage of a row, its share in its own prediction (Golub, Heath and Wahba, 1979).
  Fit primal_fit(const Reals& inverse, const Reals& solved, double penalty) const {
    double trace = 0.0;
    for (const double value : inverse) trace += value * value;
    const double own = (static_cast<double>(width_) - penalty * trace + 1.0) / static_cast<double>(n_);
    Fit fit{solved, Reals(y_.size())};
    std::vector<float> weights(solved.begin(), solved.end());
    const std::vector<float> predicted =
        product(n_, outputs_, width_, {x_.x.data(), width_}, {weights.data(), outputs_}, execution_);
    constexpr double least = 1e-3;
    for (std::size_t i = 0; i < y_.size(); ++i) {
      fit.predicted[i] = y_[i] - (y_[i] - static_cast<double>(predicted[i])) / std::max(least, 1.0 - own);
    }
    return fit;
  }

  const Standard& x_;
  const Reals& y_;
  Index n_, width_, outputs_;
  bool dual_;
  Execution execution_;
  Reals gram_;      // [n, n] or [F, F]
  Reals products_;  // [F, m]: x^T y
};

double squares_off(const Reals& a, const Reals& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0, std::plus<>(),
                            [](double x, double y) { return (x - y) * (x - y); });
}

/// The factor that makes the best logits of values [n, classes].
double best_factor(const Reals& values, std::span<const std::int32_t> labels, Index classes) {
  constexpr double least = 0.5, most = 64.0;
  double best = least, best_loss = std::numeric_limits<double>::infinity();
  for (double factor = least; factor <= most; factor *= std::numbers::sqrt2) {
    Reals logits = values;
    for (double& logit : logits) logit *= factor;
    const double loss = cross_entropy(logits, labels, classes);
    if (loss < best_loss) best_loss = loss, best = factor;
  }
  return best;
}

}  // namespace

void RidgeClassifier::logits(std::span<const float> x, std::span<double> logits) const {
  for (Index c = 0; c < classes; ++c) {
    logits[c] = std::inner_product(x.begin(), x.end(), weights.begin() + c * features, intercept[c]);
  }
}

double cross_entropy(std::span<const double> logits, std::span<const std::int32_t> labels, Index classes) {
  double loss = 0.0;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const auto row = logits.subspan(i * static_cast<std::size_t>(classes), static_cast<std::size_t>(classes));
    const double largest = *std::ranges::max_element(row);
    double sum = 0.0;
    for (const double logit : row) sum += std::exp(logit - largest);
    loss += std::log(sum) + largest - row[labels[i]];
  }
  return loss / static_cast<double>(labels.size());
}

RidgeClassifier fit_ridge_classifier(std::span<const float> x, std::span<const std::int32_t> labels, Index features,
                                     Index classes, const Execution& execution) {
  const Standard standard(x, features);
  const Index n = standard.rows;
  RidgeClassifier result{.classes = classes, .features = features, .weights = {}, .intercept = {}};
  Reals means(static_cast<std::size_t>(classes), -1.0);
  for (const std::int32_t label : labels) means[label] += 2.0 / static_cast<double>(n);
  Reals y(static_cast<std::size_t>(n * classes));
  for (Index i = 0; i < n; ++i) {
    for (Index c = 0; c < classes; ++c) y[i * classes + c] = (labels[i] == c ? 1.0 : -1.0) - means[c];
  }
  const Ridge ridge(standard, y, classes, execution);
  Ridge::Fit best;
  double least = std::numeric_limits<double>::infinity();
  // Penalties are relative to the mean of a row's squares, which is the number of features.
  for (double penalty = 1e-3; penalty < 300.0; penalty *= 10.0) {
    Ridge::Fit fit = ridge.fit(penalty * static_cast<double>(features));
    const double off = squares_off(fit.predicted, y);
    if (off < least) least = off, best = std::move(fit);
  }
  for (Index i = 0; i < n * classes; ++i) best.predicted[i] += means[i % classes];
  const double factor = best_factor(best.predicted, labels, classes);
  result.intercept.resize(static_cast<std::size_t>(classes));
  result.weights.assign(static_cast<std::size_t>(classes * features), 0.0);
  for (Index c = 0; c < classes; ++c) {
    double intercept = means[c];
    for (Index f = 0; f < features; ++f) {
      if (!(standard.deviations[f] > 0.0)) continue;
      const double weight = best.weights[f * classes + c] / standard.deviations[f];
      intercept -= weight * standard.means[f];
      result.weights[c * features + f] = factor * weight;
    }
    result.intercept[c] = factor * intercept;
  }
  return result;
}

}  // namespace penstock::training
