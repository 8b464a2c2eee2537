#include "ops/training/sound_loss.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <numbers>
#include <vector>

#include "base/algebra/fourier.h"
#include "base/check.h"
#include "base/sound_errors.h"
#include "ops/pointwise/elementwise.h"

namespace penstock::ops {

namespace {

/// Squares of magnitudes are at least this, as in the authors' program: logarithms stay finite.
constexpr double least_square = 1e-7;

/// Frames of one size.
struct Frames {
  explicit Frames(Index size) : fourier(size), window(static_cast<std::size_t>(size)) {
    for (Index m = 0; m < size; ++m) {
      window[m] = 0.5 - 0.5 * std::cos(2.0 * std::numbers::pi * static_cast<double>(m) / static_cast<double>(size));
      window_power += window[m] * window[m];
    }
  }

  Index hop() const { return fourier.size() / 4; }
  Index bins() const { return fourier.size() / 2 + 1; }
  Index count(Index samples) const { return samples < fourier.size() ? 0 : (samples - fourier.size()) / hop() + 1; }

  Fourier fourier;
  std::vector<double> window;  // [n], Hann
  double window_power = 0.0;
};

const std::array<Frames, 3>& all_frames() {
  static const std::array<Frames, 3> frames = {Frames(longest_frame / 4), Frames(longest_frame / 2),
                                               Frames(longest_frame)};
  return frames;
}

/// The memory of one row.
struct Row {
  double *difference, *target, *gradient;  // [T]; the gradient by the difference
  double *convergence_slope, *log_slope;   // [T]: of the sums of one frame size
  std::complex<double>* frame;             // [longest_frame]

  static Index doubles(Index steps) { return 5 * steps + 2 * longest_frame; }
  Row(double* memory, Index steps)
      : difference(memory),
        target(memory + steps),
        gradient(memory + 2 * steps),
        convergence_slope(memory + 3 * steps),
        log_slope(memory + 4 * steps),
        frame(reinterpret_cast<std::complex<double>*>(memory + 5 * steps)) {}
};

/// Sums over the frames of one size.
struct FrameSums {
  double squares = 0.0, target_squares = 0.0, logarithms = 0.0;
};

/// Adds one bin of a frame to the sums. Returns the slopes of `squares` / 2 and `logarithms` by the spectrum y.
std::array<std::complex<double>, 2> add_bin(const RealSpectra& of, FrameSums& sums) {
  const auto magnitude = [](double square) { return std::sqrt(square < least_square ? least_square : square); };
  const double square = std::norm(of.x), y = magnitude(square), target = magnitude(std::norm(of.y));
  const double off = y - target, ratio = std::log(y / target);
  sums.squares += off * off;
  sums.target_squares += target * target;
  sums.logarithms += std::abs(ratio);
  if (square < least_square) return {};
  return {of.x * (off / y), of.x * ((ratio > 0.0 ? 1.0 : ratio < 0.0 ? -1.0 : ratio) / square)};
}

/// Adds the frame that begins at `begin`. With slopes, a second transform turns those by the spectrum into those by the
/// samples: the sum over bins of slope_k exp(2 pi i k m / n), whose real part is a transform of a hermitian sequence;
/// two such sequences fit one transform.
void add_frame(const Frames& frames, Index begin, const Row& row, bool slopes, FrameSums& sums) {
  const Index n = frames.fourier.size();
  std::complex<double>* const z = row.frame;
  for (Index m = 0; m < n; ++m) {
    const double target = row.target[begin + m];
    z[m] = {frames.window[m] * (target + row.difference[begin + m]), frames.window[m] * target};
  }
  frames.fourier.transform(z);
  for (Index k = 0; k < frames.bins(); ++k) {
    const auto [convergence, logarithm] = add_bin(RealSpectra(z, n, k), sums);
    const std::complex<double> i(0.0, 1.0);
    const bool alone = k == 0 || 2 * k == n;
    const double share = alone ? 1.0 : 0.5;
    z[k] = share * (std::conj(convergence) + i * std::conj(logarithm));
    if (!alone) z[n - k] = share * (convergence + i * logarithm);
  }
  if (!slopes) return;
  frames.fourier.transform(z);
  for (Index m = 0; m < n; ++m) {
    row.convergence_slope[begin + m] += frames.window[m] * z[m].real();
    row.log_slope[begin + m] += frames.window[m] * z[m].imag();
  }
}

/// Returns the STFT part of a row of `length` samples; adds `factor` times its slopes to the gradient if wanted.
double stft(const Row& row, Index length, double factor, bool slopes) {
  const auto fits = std::ranges::count_if(all_frames(), [&](const Frames& each) { return each.count(length) > 0; });
  double result = 0.0;
  for (const Frames& frames : all_frames()) {
    const Index count = frames.count(length);
    if (count == 0) break;  // as are longer ones
    FrameSums sums;
    std::fill_n(row.convergence_slope, length, 0.0);
    std::fill_n(row.log_slope, length, 0.0);
    for (Index j = 0; j < count; ++j) add_frame(frames, j * frames.hop(), row, slopes, sums);
    const auto bins = static_cast<double>(count * frames.bins());
    const double quiet = quiet_power * frames.window_power * bins;  // what noise of that power has
    const double off = std::sqrt(sums.squares), size = std::sqrt(sums.target_squares + quiet);
    result += off / size + sums.logarithms / bins;
    if (!slopes) continue;
    const double share = factor / static_cast<double>(fits);
    const double of_convergence = off == 0.0 ? 0.0 : share / (off * size), of_logarithms = share / bins;
    for (Index t = 0; t < length; ++t) {
      row.gradient[t] += of_convergence * row.convergence_slope[t] + of_logarithms * row.log_slope[t];
    }
  }
  return fits > 0 ? result / static_cast<double>(fits) : 0.0;
}

/// Adds the slopes of `esr` ESR + `dc` DC to the gradient.
void add_slopes(const SoundErrors& sums, const SoundLossParts& parts, const Row& row, Index length) {
  const double esr = parts.esr * 2.0 / sums.esr_scale(), dc = parts.dc * 2.0 * sums.sum / sums.dc_scale();
  double before = 0.0;
  for (Index t = 0; t < length; ++t) {
    const double error = row.difference[t] - sums.emphasis * before;
    before = row.difference[t];
    row.gradient[t] += esr * error + dc;
    if (t > 0) row.gradient[t - 1] -= esr * sums.emphasis * error;
  }
}

/// Returns the loss of a row of `length` samples; its gradient too if wanted.
double row_loss(const SoundLossParts& parts, const Row& row, Index length, bool slopes) {
  std::fill_n(row.gradient, length, 0.0);
  double loss = 0.0;
  if (parts.esr > 0.0 || parts.dc > 0.0) {
    SoundErrors sums{.emphasis = parts.emphasis, .floor = quiet_power};
    for (Index t = 0; t < length; ++t) sums.add(row.difference[t], row.target[t]);
    loss += parts.esr * sums.esr() + parts.dc * sums.dc();
    if (slopes) add_slopes(sums, parts, row, length);
  }
  if (parts.stft > 0.0) loss += parts.stft * stft(row, length, parts.stft, slopes);
  return loss;
}

}  // namespace

std::size_t sound_loss_scratch(Index rows, Index steps) {
  all_frames();
  return static_cast<std::size_t>(rows * (1 + Row::doubles(steps))) * sizeof(double);
}

LossSum sound_loss(LossKind kind, int threads, Index rows, Index steps, const Regression& batch, float* gradient,
                   void* scratch) {
  require(batch.width == 1 && batch.positions == rows * steps, "a loss of sound has one value a sample, not {}",
          batch.width);
  const SoundLossParts parts = sound_parts(kind);
  double* const losses = static_cast<double*>(scratch);  // [B]
  double* const memory = losses + rows;
  LossSum result;
  result.scored = std::count_if(batch.weights, batch.weights + batch.positions, [](float w) { return w != 0.0f; });
  result.weight = static_cast<double>(result.scored);
  for_range(threads, rows, 256 * steps, [&](Index begin, Index end) {
    for (Index b = begin; b < end; ++b) {
      const float* const weights = batch.weights + b * steps;
      const Row row(memory + b * Row::doubles(steps), steps);
      Index length = 0, scored = 0;
      for (Index t = 0; t < steps; ++t) {
        const bool counts = weights[t] != 0.0f;
        row.target[t] = counts ? static_cast<double>(batch.targets[b * steps + t]) : 0.0;
        row.difference[t] = counts ? static_cast<double>(batch.y[b * steps + t]) - row.target[t] : 0.0;
        if (counts) length = t + 1, ++scored;
      }
      losses[b] = scored > 0 ? static_cast<double>(scored) * row_loss(parts, row, length, gradient != nullptr) : 0.0;
      if (gradient == nullptr) continue;
      const double factor = scored > 0 ? static_cast<double>(scored) / result.weight : 0.0;
      for (Index t = 0; t < steps; ++t) {
        const bool counts = weights[t] != 0.0f;
        gradient[b * steps + t] = counts ? static_cast<float>(factor * row.gradient[t]) : 0.0f;
      }
    }
  });
  for (Index b = 0; b < rows; ++b) result.sum += losses[b];
  return result;
}

}  // namespace penstock::ops
