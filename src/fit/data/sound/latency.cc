#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <span>
#include <vector>

#include "base/algebra/fourier.h"
#include "base/check.h"
#include "penstock/data/sound.h"
#include "penstock/stop.h"

namespace penstock {
namespace {

using Complex = std::complex<double>;

/// Cross-spectrum and powers of two sounds, summed over blocks. A block is `block` samples of the input and the samples
/// of the target up to `most` before and behind them, which a transform of n samples holds.
class CrossSpectrum {
 public:
  explicit CrossSpectrum(Index most)
      : fourier_(static_cast<Index>(std::bit_ceil(static_cast<std::uint64_t>(4 * most)))),
        most_(most),
        block_(fourier_.size() - 2 * most),
        cross_(static_cast<std::size_t>(fourier_.size() / 2 + 1)),
        input_power_(cross_.size()),
        target_power_(cross_.size()),
        z_(static_cast<std::size_t>(fourier_.size())) {}

  Index block() const { return block_; }

  void add(std::span<const float> input, std::span<const float> target, Index start) {
    const auto at = [](std::span<const float> sound, Index i) {
      return i >= 0 && i < static_cast<Index>(sound.size()) ? static_cast<double>(sound[i]) : 0.0;
    };
    for (Index m = 0; m < fourier_.size(); ++m) {
      z_[m] = {m < block_ ? at(input, start + m) : 0.0, at(target, start + m - most_)};
    }
    fourier_.transform(z_.data());
    for (Index k = 1; k < static_cast<Index>(cross_.size()); ++k) {  // a mean says nothing of a shift
      const RealSpectra of(z_.data(), fourier_.size(), k);
      cross_[k] += of.x * std::conj(of.y);
      input_power_[k] += std::norm(of.x);
      target_power_[k] += std::norm(of.y);
    }
  }

  /// Returns the absolute correlation at each shift of -most..most. Frequencies count by their coherence, not by their
  /// power, so that what an amplifier does to the spectrum does not blur the peak.
  std::vector<double> correlation() {
    constexpr double least = 1e-3;  // of the mean power: what is below counts less
    double mean = 0.0;
    for (std::size_t k = 0; k < cross_.size(); ++k) mean += std::sqrt(input_power_[k] * target_power_[k]);
    mean /= static_cast<double>(cross_.size());
    const Index n = fourier_.size();
    std::ranges::fill(z_, Complex());
    for (Index k = 1; 2 * k <= n && mean > 0.0; ++k) {
      z_[k] = cross_[k] / (std::sqrt(input_power_[k] * target_power_[k]) + least * mean);
      z_[n - k] = std::conj(z_[k]);
    }
    fourier_.transform(z_.data());
    std::vector<double> result(static_cast<std::size_t>(2 * most_ + 1));
    std::ranges::transform(std::span(z_).first(result.size()), result.begin(), [](Complex c) { return std::abs(c); });
    return result;
  }

 private:
  Fourier fourier_;
  Index most_, block_;
  std::vector<Complex> cross_;
  std::vector<double> input_power_, target_power_;
  std::vector<Complex> z_;
};

/// Returns the first index beyond the peak at `peak`, in the direction of `step`: behind it the correlation is below
/// half of the peak's and rises again.
Index end_of_peak(const std::vector<double>& correlation, Index peak, Index step) {
  const auto last = static_cast<Index>(correlation.size()) - 1;
  Index i = peak;
  while (i + step >= 0 && i + step <= last &&
         (correlation[i] >= 0.5 * correlation[peak] || correlation[i + step] <= correlation[i])) {
    i += step;
  }
  return i + step;
}

}  // namespace

LatencyEstimate estimate_latency(const Sound& input, const Sound& target) {
  constexpr Index most_blocks = 32, largest = Index{1} << 19;
  constexpr double clear_contrast = 1.25, clear_height = 6.0;  // next to the next peak, and to the rest's RMS
  const auto shorter = static_cast<Index>(std::min(input.samples.size(), target.samples.size()));
  const Index most = std::min({input.sample_rate / 2, shorter / 2, largest});
  const auto silent = [](const Sound& sound) {
    return std::ranges::count(sound.samples, 0.0f) == std::ssize(sound.samples);
  };
  if (most < 1 || silent(input) || silent(target)) return {};
  CrossSpectrum spectrum(most);
  const Index blocks = (static_cast<Index>(input.samples.size()) + spectrum.block() - 1) / spectrum.block();
  const Index read = std::min(blocks, most_blocks);
  for (Index i = 0; i < read; ++i) {
    stop_if_asked();
    spectrum.add(input.samples, target.samples, i * blocks / read * spectrum.block());
  }
  const std::vector<double> correlation = spectrum.correlation();
  const Index peak = std::ranges::max_element(correlation) - correlation.begin();
  const Index begin = end_of_peak(correlation, peak, -1), end = end_of_peak(correlation, peak, 1);
  double squares = 0.0, others = 0.0, next = 0.0;
  LatencyEstimate result{.samples = peak - most};
  for (Index i = 0; i < static_cast<Index>(correlation.size()); ++i) {
    if (i > begin && i < end) continue;
    squares += correlation[i] * correlation[i];
    ++others;
    if (correlation[i] > next) next = correlation[i], result.next = i - most;
  }
  result.contrast = next > 0.0 ? correlation[peak] / next : 0.0;
  result.at_zero = correlation[most] / correlation[peak];
  result.clear = result.contrast >= clear_contrast &&
                 correlation[peak] >= clear_height * std::sqrt(squares / std::max(others, 1.0));
  return result;
}

}  // namespace penstock
