#pragma once

#include <complex>
#include <vector>

#include "penstock/types.h"

namespace penstock {

/// The discrete Fourier transform of a power of two of complex numbers, in double (radix 2). Immutable.
class Fourier {
 public:
  /// `size` n: a power of two from 1.
  explicit Fourier(Index size);

  Index size() const { return size_; }
  /// z_k becomes the sum of z_m exp(-2 pi i k m / n) over m, in place. z [n]
  void transform(std::complex<double>* z) const;

 private:
  Index size_;
  std::vector<Index> reversed_;                // [n]: indices with their bits reversed
  std::vector<std::complex<double>> factors_;  // [n / 2]: exp(-2 pi i k / n)
};

/// Returns the transforms of two real sequences at frequency k of 0..n/2, of the transform z [n] of x + i y.
struct RealSpectra {
  std::complex<double> x, y;

  RealSpectra(const std::complex<double>* z, Index n, Index k)
      : x(0.5 * (z[k] + std::conj(z[k == 0 ? 0 : n - k]))), y(z[k] - x) {
    y = {y.imag(), -y.real()};
  }
};

}  // namespace penstock
