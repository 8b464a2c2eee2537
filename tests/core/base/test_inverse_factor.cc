#include "base/algebra/inverse_factor.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/random.h"

namespace penstock::training {
namespace {

/// A = B B^T + n of random B [n, n].
std::vector<double> positive(Index n) {
  Random random(static_cast<std::uint64_t>(n));
  std::vector<double> b(static_cast<std::size_t>(n * n)), a(b.size());
  for (double& value : b) value = random.normal();
  for (Index i = 0; i < n; ++i) {
    for (Index j = 0; j < n; ++j) {
      double sum = i == j ? static_cast<double>(n) : 0.0;
      for (Index k = 0; k < n; ++k) sum += b[i * n + k] * b[j * n + k];
      a[i * n + j] = sum;
    }
  }
  return a;
}

TEST(InverseFactor, MakesTheMatrixOne) {
  for (const Index n : {1, 2, 63, 64, 65, 131, 193}) {
    const std::vector<double> a = positive(n);
    std::vector<double> inverse = a;
    for (Index i = 0; i < n; ++i) {
      for (Index j = i + 1; j < n; ++j) inverse[i * n + j] = std::nan("");  // the upper triangle is not read
    }
    ASSERT_TRUE(invert_factor(inverse, n)) << n;
    double worst = 0.0;
    for (Index i = 0; i < n; ++i) {
      for (Index j = i + 1; j < n; ++j) EXPECT_EQ(inverse[i * n + j], 0.0);
      std::vector<double> row(static_cast<std::size_t>(n), 0.0);  // of L^-1 A
      for (Index k = 0; k <= i; ++k) {
        for (Index j = 0; j < n; ++j) row[j] += inverse[i * n + k] * a[k * n + j];
      }
      for (Index j = 0; j < n; ++j) {
        double value = 0.0;
        for (Index k = 0; k <= j; ++k) value += row[k] * inverse[j * n + k];
        worst = std::max(worst, std::abs(value - (i == j ? 1.0 : 0.0)));
      }
    }
    // Eigenvalues lie between n and about 5 n: the condition is 5, and each sum has n terms.
    EXPECT_LT(worst, 5.0 * static_cast<double>(n) * 2.3e-16 * 4.0) << n;
  }
}

TEST(InverseFactor, KnowsWhatIsNotPositive) {
  for (const Index wrong : {0, 40, 64, 100}) {
    std::vector<double> a = positive(101);
    a[wrong * 101 + wrong] = -1.0;
    EXPECT_FALSE(invert_factor(a, 101)) << wrong;
  }
}

}  // namespace
}  // namespace penstock::training
