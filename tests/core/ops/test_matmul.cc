// Matrix products: every layout against a triple loop, at ugly sizes, and the promise of exact mode.

#include "ops/product/matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>
#include <tuple>
#include <vector>

#include "backend/cpu/instruction_sets.h"
#include "base/random.h"

namespace penstock::ops {
namespace {

template <class Real>
std::vector<Real> random_values(std::size_t count, std::uint64_t seed) {
  Random random(seed);
  std::vector<Real> values(count);
  for (Real& value : values) value = static_cast<Real>(random.normal());
  return values;
}

/// Row-major [rows, columns] inside rows of `stride`, the gaps NaN so that reading them shows.
template <class Real>
std::vector<Real> padded(Index rows, Index columns, Index stride, std::uint64_t seed) {
  std::vector<Real> matrix(rows * stride, std::numeric_limits<Real>::quiet_NaN());
  const std::vector<Real> values = random_values<Real>(rows * columns, seed);
  for (Index r = 0; r < rows; ++r) std::copy_n(values.data() + r * columns, columns, matrix.data() + r * stride);
  return matrix;
}

struct Layout {
  bool a_transposed, b_transposed, exact;
  int beta;
  std::vector<int> threads = {2};  // the product is computed by each number of them
};

template <class Real>
void check(Index m, Index n, Index k, const Layout& layout) {
  SCOPED_TRACE(testing::Message() << m << " x " << n << " x " << k << " aT " << layout.a_transposed << " bT "
                                  << layout.b_transposed << " exact " << layout.exact << " beta " << layout.beta);
  const Index a_rows = layout.a_transposed ? k : m, a_columns = layout.a_transposed ? m : k;
  const Index b_rows = layout.b_transposed ? n : k, b_columns = layout.b_transposed ? k : n;
  const Index a_stride = a_columns + 3, b_stride = b_columns + 1, c_stride = n + 2;
  const auto a = padded<Real>(a_rows, a_columns, a_stride, 1);
  const auto b = padded<Real>(b_rows, b_columns, b_stride, 2);
  const auto before = padded<Real>(m, n, c_stride, 3);
  std::vector<double> sums, tolerances;
  for (Index r = 0; r < m; ++r) {
    for (Index col = 0; col < n; ++col) {
      double sum = layout.beta * double(layout.beta == 0 ? 0 : before[r * c_stride + col]);
      double magnitude = std::abs(sum);
      for (Index i = 0; i < k; ++i) {
        const double product = double(layout.a_transposed ? a[i * a_stride + r] : a[r * a_stride + i]) *
                               double(layout.b_transposed ? b[col * b_stride + i] : b[i * b_stride + col]);
        sum += product;
        magnitude += std::abs(product);
      }
      sums.push_back(sum);
      // Each of the k additions rounds once: (k + 1) half units of the sum of magnitudes bounds any order.
      tolerances.push_back(static_cast<double>(k + 2) * std::numeric_limits<Real>::epsilon() * magnitude + 1e-300);
    }
  }
  for (const int threads : layout.threads) {
    SCOPED_TRACE(testing::Message() << threads << " threads");
    auto c = before;
    if (layout.beta == 0) {  // what stands in c must not matter then
      for (Index r = 0; r < m; ++r) std::fill_n(c.data() + r * c_stride, n, std::numeric_limits<Real>::quiet_NaN());
    }
    Execution execution;
    execution.threads = threads;
    execution.exact = layout.exact;
    matmul<Real>({m, n, k}, {a.data(), a_stride, layout.a_transposed}, {b.data(), b_stride, layout.b_transposed},
                 {c.data(), c_stride, layout.beta != 0}, execution);
    for (Index r = 0; r < m; ++r) {
      const auto* const row = c.data() + r * c_stride;
      for (Index col = 0; col < n; ++col) {
        ASSERT_NEAR(row[col], sums[r * n + col], tolerances[r * n + col]) << "at " << r << ", " << col;
      }
      for (Index col = n; col < c_stride; ++col) ASSERT_TRUE(std::isnan(row[col])) << "gap was written";
    }
  }
}

template <class Real>
void check_sizes(const Layout& layout) {
  for (const auto& [m, n, k] : std::vector<std::tuple<Index, Index, Index>>{{1, 1, 1},
                                                                            {1, 17, 33},
                                                                            {2, 5, 7},
                                                                            {3, 64, 64},
                                                                            {4, 1, 100},
                                                                            {5, 67, 31},
                                                                            {13, 16, 129},
                                                                            {33, 65, 17},
                                                                            {7, 3, 0}}) {
    check<Real>(m, n, k, layout);
  }
}

TEST(Matmul, EveryLayout) {
  for (const bool b_transposed : {false, true}) {
    for (const bool exact : {false, true}) {
      for (const int beta : {0, 1}) {
        check_sizes<float>({false, b_transposed, exact, beta});
        check_sizes<double>({false, b_transposed, exact, beta});
      }
    }
  }
  for (const int beta : {0, 1}) {
    check_sizes<float>({true, false, false, beta});
    check_sizes<float>({true, false, true, beta});
    check_sizes<double>({true, false, false, beta});
  }
}

void check_in_blocks() {
  for (const bool a_transposed : {false, true}) {
    for (const bool b_transposed : {false, true}) {
      if (a_transposed && b_transposed) continue;
      for (const int beta : {0, 1}) {
        const Layout layout{a_transposed, b_transposed, false, beta, {2, 3, 5, 16}};
        check<float>(130, 67, 129, layout);
        check<float>(33, 17, 1601, layout);
        check<float>(16, 16, 9000, layout);  // a single block
        check<float>(97, 300, 61, layout);
        check<float>(145, 530, 273, layout);  // more than is packed at a time
      }
    }
  }
}

TEST(Matmul, InBlocksForThreadsOnEverySet) {
  for (const std::string_view isa : cpu::available_isas()) {
    SCOPED_TRACE(isa);
    cpu::use_isa(isa);
    check_in_blocks();
  }
  cpu::use_isa(cpu::available_isas().front());
}

TEST(Matmul, ExactRowsDoNotDependOnTheirNeighbours) {
  const Index m = 23, n = 75, k = 131;
  const auto a = random_values<float>(m * k, 4);
  const auto b = random_values<float>(n * k, 5);
  for (const bool transposed : {false, true}) {
    const Matrix<float> right{b.data(), transposed ? k : n, transposed};
    std::vector<float> all(m * n), one(n);
    for (const int threads : {1, 2, 3}) {
      Execution execution;
      execution.exact = true;
      execution.threads = threads;
      matmul<float>({m, n, k}, {a.data(), k}, right, {all.data(), n}, execution);
      for (Index r = 0; r < m; ++r) {
        matmul<float>({1, n, k}, {a.data() + r * k, k}, right, {one.data(), n}, execution);
        ASSERT_EQ(std::memcmp(one.data(), all.data() + r * n, n * sizeof(float)), 0) << "row " << r;
      }
    }
  }
}

}  // namespace
}  // namespace penstock::ops
