// Losses of sound against their definitions, and their gradients against finite differences.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <numbers>
#include <vector>

#include "base/random.h"
#include "ops/training/sound_loss.h"

namespace penstock::ops {
namespace {

using Real = long double;
using Sound = std::vector<Real>;

constexpr Real quiet = 1e-4L;

Real esr(const Sound& y, const Sound& target, Real p) {
  Real error = 0, power = 0;
  for (std::size_t t = 0; t < y.size(); ++t) {
    const auto filtered = [&](const Sound& x) { return x[t] - (t > 0 ? p * x[t - 1] : 0); };
    error += std::pow(filtered(target) - filtered(y), 2);
    power += std::pow(filtered(target), 2);
  }
  return error / (power + quiet * static_cast<Real>(y.size()));
}

Real dc(const Sound& y, const Sound& target) {
  Real sum = 0, power = 0;
  const auto n = static_cast<Real>(y.size());
  for (std::size_t t = 0; t < y.size(); ++t) sum += target[t] - y[t], power += target[t] * target[t];
  return std::pow(sum / n, 2) / (power / n + quiet);
}

Real hann(std::size_t m, std::size_t n) {
  return std::pow(std::sin(std::numbers::pi_v<Real> * static_cast<Real>(m) / static_cast<Real>(n)), 2);
}

/// Magnitudes of all frames of n samples, by the definition of the transform.
Sound magnitudes(const Sound& x, std::size_t n) {
  Sound result;
  std::vector<std::complex<Real>> turns;
  for (std::size_t m = 0; m < n; ++m) {
    turns.push_back(std::polar(Real(1), -2 * std::numbers::pi_v<Real> * static_cast<Real>(m) / static_cast<Real>(n)));
  }
  for (std::size_t begin = 0; begin + n <= x.size(); begin += n / 4) {
    Sound hanned;
    for (std::size_t m = 0; m < n; ++m) hanned.push_back(hann(m, n) * x[begin + m]);
    for (std::size_t k = 0; k <= n / 2; ++k) {
      std::complex<Real> sum = 0;
      for (std::size_t m = 0; m < n; ++m) sum += hanned[m] * turns[k * m % n];
      result.push_back(std::sqrt(std::max(std::norm(sum), Real(1e-7L))));
    }
  }
  return result;
}

Real stft(const Sound& y, const Sound& target) {
  Real result = 0, sizes = 0;
  for (const std::size_t n : {256, 512, 1024}) {
    if (y.size() < n) break;
    const Sound of_y = magnitudes(y, n), of_target = magnitudes(target, n);
    Real window = 0, off = 0, size = 0, logarithms = 0;
    for (std::size_t m = 0; m < n; ++m) window += std::pow(hann(m, n), 2);
    for (std::size_t i = 0; i < of_y.size(); ++i) {
      off += std::pow(of_target[i] - of_y[i], 2);
      size += of_target[i] * of_target[i] + quiet * window;
      logarithms += std::abs(std::log(of_target[i]) - std::log(of_y[i]));
    }
    result += std::sqrt(off / size) + logarithms / static_cast<Real>(of_y.size());
    ++sizes;
  }
  return sizes > 0 ? result / sizes : 0;
}

Real loss_of(LossKind kind, const Sound& y, const Sound& target) {
  switch (kind) {
    case LossKind::esr:
      return esr(y, target, 0);
    case LossKind::esr_dc:
      return esr(y, target, 0.85L) + dc(y, target);
    case LossKind::stft:
      return stft(y, target);
    default:
      return esr(y, target, 0.85L) + dc(y, target) + stft(y, target);
  }
}

constexpr LossKind all_kinds[] = {LossKind::esr, LossKind::esr_dc, LossKind::stft, LossKind::esr_stft};

/// Rows of noise, the target with a mean, y a little beside it.
struct Rows {
  Rows(Index rows_, Index steps_, std::uint64_t seed = 1)
      : rows(rows_),
        steps(steps_),
        y(static_cast<std::size_t>(rows * steps)),
        targets(y.size()),
        weights(y.size(), 1.0f) {
    Random random(seed);
    for (std::size_t i = 0; i < y.size(); ++i) {
      targets[i] = static_cast<float>(0.2 + random.normal());
      y[i] = static_cast<float>(0.5 * static_cast<double>(targets[i]) + 0.3 * random.normal());
    }
  }

  LossSum run(LossKind kind, float* gradient = nullptr, int threads = 1) const {
    std::vector<double> scratch(sound_loss_scratch(rows, steps) / sizeof(double), -7.0);
    return sound_loss(kind, threads, rows, steps, {rows * steps, 1, y.data(), targets.data(), weights.data()}, gradient,
                      scratch.data());
  }
  /// The first `length` samples of a row.
  Sound row(const std::vector<float>& of, Index b, Index length) const {
    const auto begin = of.begin() + b * steps;
    return {begin, begin + length};
  }

  Index rows, steps;
  std::vector<float> y, targets, weights;
};

TEST(SoundLoss, AgreesWithItsDefinition) {
  Rows batch(2, 1300);
  std::fill(batch.weights.begin() + 1300 + 600, batch.weights.end(), 0.0f);  // the second row ends early
  std::fill(batch.y.begin() + 1300 + 600, batch.y.end(), std::numeric_limits<float>::quiet_NaN());
  for (const LossKind kind : all_kinds) {
    const Real want = (1300 * loss_of(kind, batch.row(batch.y, 0, 1300), batch.row(batch.targets, 0, 1300)) +
                       600 * loss_of(kind, batch.row(batch.y, 1, 600), batch.row(batch.targets, 1, 600))) /
                      1900;
    const LossSum loss = batch.run(kind);
    EXPECT_NEAR(loss.mean(), static_cast<double>(want), 1e-12 * static_cast<double>(want)) << static_cast<int>(kind);
    EXPECT_EQ(loss.scored, 1900);
  }
}

TEST(SoundLoss, HasTheGradientOfFiniteDifferences) {
  Rows batch(2, 1024);
  batch.weights[1024 + 1023] = 0.0f;
  for (const LossKind kind : all_kinds) {
    std::vector<float> gradient(batch.y.size(), -7.0f);
    const double loss = batch.run(kind, gradient.data()).mean();
    EXPECT_DOUBLE_EQ(batch.run(kind).mean(), loss) << "with and without a gradient";
    EXPECT_EQ(gradient.back(), 0.0f);
    const double largest =
        std::abs(*std::ranges::max_element(gradient, {}, [](float slope) { return std::abs(slope); }));
    for (const std::size_t i : {0, 1, 2, 300, 511, 777, 1022, 1023, 1024, 1700, 2046}) {
      constexpr float h = 0x1p-14f;  // y is at most 4, so that y +- h is exact to 2^-22
      const float y = batch.y[i], above = y + h, below = y - h;
      batch.y[i] = above;
      const double up = batch.run(kind).mean();
      batch.y[i] = below;
      const double down = batch.run(kind).mean();
      batch.y[i] = y;
      const double slope = (up - down) / (static_cast<double>(above) - static_cast<double>(below));
      // A logarithm's distance has a kink wherever the magnitudes agree; within h few bins cross one.
      EXPECT_NEAR(static_cast<double>(gradient[i]), slope, 2e-3 * largest) << static_cast<int>(kind) << " at " << i;
    }
  }
}

TEST(SoundLoss, OfEqualSoundsIsZeroAndFlat) {
  Rows batch(1, 1024);
  batch.y = batch.targets;
  for (const LossKind kind : all_kinds) {
    std::vector<float> gradient(1024, -7.0f);
    // x and y of one transform differ by its rounding.
    EXPECT_NEAR(batch.run(kind, gradient.data()).mean(), 0.0, 1e-10);
    for (const float slope : gradient) EXPECT_TRUE(std::isfinite(slope));
  }
}

TEST(SoundLoss, OfSilenceIsFinite) {
  Rows batch(2, 1024);
  std::fill_n(batch.targets.begin(), 1024, 0.0f);
  for (const bool silent_output : {false, true}) {
    if (silent_output) std::fill_n(batch.y.begin(), 1024, 0.0f);
    for (const LossKind kind : all_kinds) {
      std::vector<float> gradient(2048, -7.0f);
      EXPECT_TRUE(std::isfinite(batch.run(kind, gradient.data()).mean()));
      for (const float slope : gradient) EXPECT_TRUE(std::isfinite(slope));
    }
  }
}

TEST(SoundLoss, OfNothingIsZero) {
  Rows batch(1, 100);
  std::ranges::fill(batch.weights, 0.0f);
  std::vector<float> gradient(100, -7.0f);
  EXPECT_EQ(batch.run(LossKind::esr_stft, gradient.data()).mean(), 0.0);
  EXPECT_EQ(std::ranges::count(gradient, 0.0f), 100);
}

TEST(SoundLoss, AScoredNanShows) {
  Rows batch(1, 1024);
  batch.y[500] = std::numeric_limits<float>::quiet_NaN();
  for (const LossKind kind : all_kinds) {
    std::vector<float> gradient(1024);
    EXPECT_TRUE(std::isnan(batch.run(kind, gradient.data()).mean())) << static_cast<int>(kind);
    EXPECT_TRUE(std::ranges::any_of(gradient, [](float slope) { return std::isnan(slope); }));
  }
}

TEST(SoundLoss, DoesNotDependOnThreads) {
  const Rows batch(8, 1100);
  std::vector<float> one(batch.y.size()), four(batch.y.size());
  EXPECT_EQ(batch.run(LossKind::esr_stft, one.data(), 1).sum, batch.run(LossKind::esr_stft, four.data(), 4).sum);
  EXPECT_EQ(one, four);
}

}  // namespace
}  // namespace penstock::ops
