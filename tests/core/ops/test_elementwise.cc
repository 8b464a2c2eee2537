// Sums and checks between the matrix products.

#include "ops/pointwise/elementwise.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "base/random.h"

namespace penstock::ops {
namespace {

TEST(Elementwise, ColumnSumsDoNotDependOnThreads) {
  Random random(3);
  std::vector<float> x(1000 * 33);
  for (float& value : x) value = static_cast<float>(random.normal());
  std::vector<std::vector<float>> results;
  for (const int threads : {1, 2, 5}) {
    std::vector<float> sums(33, 0.25f);
    std::vector<float> partial(static_cast<std::size_t>(gradient_parts(1000) * 33),
                               std::numeric_limits<float>::quiet_NaN());
    add_column_sums(threads, 1000, 33, x.data(), sums.data(), partial.data());
    results.push_back(sums);
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
  double expected = 0.25;
  for (Index r = 0; r < 1000; ++r) expected += static_cast<double>(x[static_cast<std::size_t>(r * 33)]);
  EXPECT_NEAR(results[0][0], expected, 1e-4);
}

TEST(Elementwise, AllFiniteFindsTheOneBadValue) {
  std::vector<float> x(100000, 1.0f);
  const auto finite = [&] { return all_finite(0, static_cast<Index>(x.size()), x.data()); };
  EXPECT_TRUE(finite());
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    x[77777] = bad;
    EXPECT_FALSE(finite());
  }
  x[77777] = std::numeric_limits<float>::max();
  EXPECT_TRUE(finite());
}

TEST(Elementwise, SquaresAreSummedInDoubleWhateverTheThreads) {
  // Beyond the range of float when squared, and past one part.
  std::vector<float> x(static_cast<std::size_t>(squares_per_part) + 9, 3e20f);
  const auto n = static_cast<Index>(x.size());
  std::vector<double> partial(static_cast<std::size_t>(square_parts(n)), -7.0);
  const double one = sum_of_squares(1, n, x.data(), partial.data());
  EXPECT_EQ(sum_of_squares(3, n, x.data(), partial.data()), one);
  const double each = static_cast<double>(3e20f) * static_cast<double>(3e20f);
  EXPECT_NEAR(one / (static_cast<double>(n) * each), 1.0, static_cast<double>(n) * 0x1p-53);
}

}  // namespace
}  // namespace penstock::ops
