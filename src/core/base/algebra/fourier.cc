#include "base/algebra/fourier.h"

#include <bit>
#include <numbers>
#include <utility>

#include "base/check.h"

namespace penstock {

Fourier::Fourier(Index size) : size_(size) {
  require(size > 0 && std::has_single_bit(static_cast<std::uint64_t>(size)), "size must be a power of two, not {}",
          size);
  reversed_.assign(static_cast<std::size_t>(size), 0);
  for (Index i = 1; i < size; ++i) reversed_[i] = reversed_[i / 2] / 2 + (i % 2) * (size / 2);
  factors_.reserve(static_cast<std::size_t>(size / 2));
  for (Index k = 0; k < size / 2; ++k) {
    factors_.push_back(std::polar(1.0, -2.0 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(size)));
  }
}

void Fourier::transform(std::complex<double>* z) const {
  for (Index i = 0; i < size_; ++i) {
    if (i < reversed_[i]) std::swap(z[i], z[reversed_[i]]);
  }
  for (Index half = 1; half < size_; half *= 2) {
    const Index step = size_ / (2 * half);
    for (Index begin = 0; begin < size_; begin += 2 * half) {
      for (Index k = 0; k < half; ++k) {
        const std::complex<double> factor = factors_[k * step], low = z[begin + k], high = z[begin + k + half];
        // Written out: the operator * of complex numbers also treats infinities.
        const std::complex<double> turned(factor.real() * high.real() - factor.imag() * high.imag(),
                                          factor.real() * high.imag() + factor.imag() * high.real());
        z[begin + k] = low + turned;
        z[begin + k + half] = low - turned;
      }
    }
  }
}

}  // namespace penstock
