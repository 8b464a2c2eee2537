// The transform against its definition.

#include "base/algebra/fourier.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <numbers>
#include <vector>

#include "base/random.h"
#include "support/expect_error.h"

namespace penstock {
namespace {

using Complex = std::complex<double>;

TEST(Fourier, AgreesWithItsDefinition) {
  Random random(1);
  for (const Index n : {1, 2, 4, 8, 64, 256}) {
    std::vector<Complex> z(static_cast<std::size_t>(n));
    double size = 0.0;
    for (Complex& each : z) {
      each = {random.normal(), random.normal()};
      size += std::norm(each);
    }
    std::vector<Complex> transformed = z;
    Fourier(n).transform(transformed.data());
    // log2(n) rounds of sums, each a few units of the last place off.
    const double tolerance =
        4.0 * 0x1p-53 * (1.0 + std::log2(static_cast<double>(n))) * std::sqrt(size * static_cast<double>(n));
    for (Index k = 0; k < n; ++k) {
      std::complex<long double> sum = 0;
      for (Index m = 0; m < n; ++m) {
        const long double angle = -2 * std::numbers::pi_v<long double> * static_cast<long double>(k * m % n) / n;
        sum += std::complex<long double>(z[m]) * std::polar(1.0L, angle);
      }
      EXPECT_NEAR(transformed[k].real(), static_cast<double>(sum.real()), tolerance) << n << ", " << k;
      EXPECT_NEAR(transformed[k].imag(), static_cast<double>(sum.imag()), tolerance) << n << ", " << k;
    }
  }
}

TEST(Fourier, TellsTwoRealSequencesApart) {
  constexpr Index n = 16;
  Random random(2);
  std::vector<Complex> x(n), y(n), both(n);
  for (Index m = 0; m < n; ++m) {
    x[m] = random.normal(), y[m] = random.normal();
    both[m] = {x[m].real(), y[m].real()};
  }
  const Fourier fourier(n);
  for (auto* z : {&x, &y, &both}) fourier.transform(z->data());
  for (Index k = 0; k <= n / 2; ++k) {
    const RealSpectra of(both.data(), n, k);
    EXPECT_LT(std::abs(of.x - x[k]) + std::abs(of.y - y[k]), 1e-14) << k;
  }
}

TEST(Fourier, RefusesOtherSizes) {
  for (const Index n : {0, -4, 12}) {
    test::expect_error(ErrorCode::invalid_argument, fmt::format("size must be a power of two, not {}", n),
                       [&] { Fourier of(n); });
  }
}

}  // namespace
}  // namespace penstock
