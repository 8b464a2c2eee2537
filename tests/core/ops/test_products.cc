// The kernels of products that gradients are made of, against plain loops in double: a^T b summed over many rows, and
// rows times a packed matrix, on every instruction set. Where nothing may be written there is NaN, and it must still be
// there.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>
#include <tuple>
#include <vector>

#include "backend/cpu/instruction_sets.h"
#include "backend/cpu/product_kernels.h"
#include "base/aligned.h"
#include "base/random.h"

namespace penstock::ops {
namespace {

constexpr float kNone = std::numeric_limits<float>::quiet_NaN();

/// Rows of `columns` values, each row `gap` further away than it need be, with NaN between them.
struct Rows {
  Index columns, stride;
  AlignedVector<float> values;
  std::vector<const float*> row;
  std::vector<float*> to;

  Rows(Index rows, Index cols, Index gap, std::uint64_t seed)
      : columns(cols), stride(cols + gap), values(static_cast<std::size_t>(rows * stride), kNone) {
    Random random(seed);
    for (Index r = 0; r < rows; ++r) {
      for (Index c = 0; c < columns; ++c) at(r, c) = static_cast<float>(random.normal());
      to.push_back(values.data() + r * stride);
    }
    row.assign(to.begin(), to.end());
  }
  float& at(Index r, Index c) { return values[static_cast<std::size_t>(r * stride + c)]; }
  bool gaps_are_untouched() {
    for (Index r = 0; r < static_cast<Index>(to.size()); ++r) {
      for (Index c = columns; c < stride; ++c) {
        if (!std::isnan(at(r, c))) return false;
      }
    }
    return true;
  }
};

/// A sum of n products of sizes `sizes` in all, rounded once a term and once for what it is added to.
double tolerance(Index n, double sizes) {
  return static_cast<double>(n + 2) * std::numeric_limits<float>::epsilon() * sizes;
}

using Sizes = std::tuple<Index, Index, Index, std::string_view>;

/// The last parameter is the instruction set.
class OnASet : public testing::TestWithParam<Sizes> {
 protected:
  void SetUp() override { cpu::use_isa(std::get<3>(GetParam())); }
  void TearDown() override { cpu::use_isa(cpu::available_isas().front()); }
};

/// K, M, columns of both b.
class Transposed : public OnASet {};

TEST_P(Transposed, SumsAgainstLoopsInDouble) {
  const auto [rows, gates, n, isa] = GetParam();
  const cpu::ProductKernels<float> kernels = cpu::product_kernels<float>();
  Rows a(rows, gates, 3, 1), b(rows, n + 2, 5, 2), second(rows, 3, 1, 3);
  Rows c(gates, n, 7, 4), d(gates, 3, 2, 5), sums(1, gates, 0, 6);
  const Rows c_before = c, d_before = d, sums_before = sums;
  cpu::TransposedProduct<float> product;
  product.rows = rows;
  product.a = a.values.data();
  product.a_stride = a.stride;
  product.factors[0] = {b.row.data(), 2, n, c.values.data(), c.stride, 0};
  product.factors[1] = {second.row.data(), 0, 3, d.values.data(), d.stride, 0};
  product.sums[0] = sums.values.data();
  AlignedVector<float> scratch(static_cast<std::size_t>(kernels.transposed_scratch(n, 3)));
  const Index middle = gates / 3;
  kernels.add_transposed(product, 0, middle, scratch.data());
  kernels.add_transposed(product, middle, gates, scratch.data());
  const auto check = [&](Rows& got, const Rows& before, Rows& factor, Index offset) {
    Rows start = before;
    // The loops here take far longer than the kernel: of a large product every seventh element, in all rows and
    // columns.
    const Index every = rows * gates * got.columns > 1 << 20 ? 7 : 1;
    for (Index element = 0; element < gates * got.columns; element += every) {
      const Index m = element / got.columns, i = element % got.columns;
      double want = start.at(m, i), sizes = std::abs(want);
      for (Index k = 0; k < rows; ++k) {
        const double term = double{a.at(k, m)} * factor.at(k, offset + i);
        want += term;
        sizes += std::abs(term);
      }
      ASSERT_NEAR(got.at(m, i), want, tolerance(rows, sizes)) << m << ", " << i;
    }
    EXPECT_TRUE(got.gaps_are_untouched());
  };
  check(c, c_before, b, 2);
  check(d, d_before, second, 0);
  for (Index m = 0; m < gates; ++m) {
    double want = sums_before.values[static_cast<std::size_t>(m)], sizes = std::abs(want);
    for (Index k = 0; k < rows; ++k) want += a.at(k, m), sizes += std::abs(a.at(k, m));
    ASSERT_NEAR(sums.at(0, m), want, tolerance(rows, sizes)) << m;
  }
}

TEST_P(Transposed, SharesOfColumnsGiveTheSameBits) {
  const auto [rows, gates, n, isa] = GetParam();
  const cpu::ProductKernels<float> kernels = cpu::product_kernels<float>();
  Rows a(rows, gates, 0, 1), b(rows, n, 0, 2), whole(gates, n, 0, 3);
  Rows parts = whole;
  AlignedVector<float> scratch(static_cast<std::size_t>(kernels.transposed_scratch(n, 0)));
  cpu::TransposedProduct<float> product;
  product.rows = rows;
  product.a = a.values.data();
  product.a_stride = a.stride;
  product.factors[0] = {b.row.data(), 0, n, whole.values.data(), n, 0};
  kernels.add_transposed(product, 0, gates, scratch.data());
  for (Index part = 0; part < 5; ++part) {
    const Index begin = gates * part / 5, end = gates * (part + 1) / 5;
    // A c of its own for each share: row 0 belongs to the share's first column.
    product.factors[0].c = parts.values.data() + begin * n;
    product.factors[0].first = begin;
    if (begin < end) kernels.add_transposed(product, begin, end, scratch.data());
  }
  EXPECT_EQ(std::memcmp(whole.values.data(), parts.values.data(), whole.values.size() * sizeof(float)), 0);
}

INSTANTIATE_TEST_SUITE_P(Sizes, Transposed,
                         testing::Combine(testing::Values<Index>(0, 1, 17, 256, 257, 600),
                                          testing::Values<Index>(1, 13, 96, 769, 1543),
                                          testing::Values<Index>(1, 31, 33, 100),
                                          testing::ValuesIn(cpu::available_isas())));

/// Rows, K, N.
class PackedMatrix : public OnASet {
 protected:
  /// a b -> c; the panels of b are this object's.
  cpu::PanelProduct<float> product_of(const Rows& a, const Rows& b, Rows& c) {
    const auto inner = static_cast<Index>(b.row.size());
    panels_.resize(kernels_.product_panels(inner, b.columns));
    kernels_.pack_product_panels(inner, b.columns, b.values.data(), b.stride, panels_.data());
    cpu::PanelProduct<float> product;
    product.a = a.values.data();
    product.a_stride = a.stride;
    product.inner = inner;
    product.columns = b.columns;
    product.panels = panels_.data();
    product.c_row = c.to.data();
    return product;
  }

  void SetUp() override {
    OnASet::SetUp();
    kernels_ = cpu::product_kernels<float>();
  }

  cpu::ProductKernels<float> kernels_;

 private:
  AlignedVector<float> panels_;
};

TEST_P(PackedMatrix, ProductsAgainstLoopsInDouble) {
  const auto [rows, inner, n, isa] = GetParam();
  Rows a(rows, inner, 3, 1), b(inner, n, 2, 2), c(rows, n, 5, 3);
  const cpu::PanelProduct<float> product = product_of(a, b, c);
  kernels_.rows_times_panels(product, 0, rows / 2);
  kernels_.rows_times_panels(product, rows / 2, rows);
  for (Index r = 0; r < rows; ++r) {
    for (Index i = 0; i < n; ++i) {
      double want = 0, sizes = 0;
      for (Index k = 0; k < inner; ++k) {
        want += double{a.at(r, k)} * b.at(k, i);
        sizes += std::abs(double{a.at(r, k)} * b.at(k, i));
      }
      ASSERT_NEAR(c.at(r, i), want, tolerance(inner, sizes)) << r << ", " << i;
    }
  }
  EXPECT_TRUE(c.gaps_are_untouched());
}

TEST_P(PackedMatrix, ARowIsTheSameBitsWhateverRunsBesideIt) {
  const auto [rows, inner, n, isa] = GetParam();
  Rows a(rows, inner, 0, 1), b(inner, n, 0, 2), together(rows, n, 0, 3), alone(rows, n, 0, 4);
  cpu::PanelProduct<float> product = product_of(a, b, together);
  kernels_.rows_times_panels(product, 0, rows);
  product.c_row = alone.to.data();
  for (Index r = 0; r < rows; ++r) kernels_.rows_times_panels(product, r, r + 1);
  EXPECT_EQ(std::memcmp(together.values.data(), alone.values.data(), alone.values.size() * sizeof(float)), 0);
}

// By what is no number the trainer finds out that a step went wrong.
TEST_P(PackedMatrix, WhatIsNotFiniteSpoilsItsRowAlone) {
  const auto [rows, inner, n, isa] = GetParam();
  for (const float broken : {kNone, std::numeric_limits<float>::infinity()}) {
    Rows a(rows, inner, 0, 1), b(inner, n, 0, 2), c(rows, n, 0, 3);
    a.at(rows / 2, inner / 2) = broken;
    const cpu::PanelProduct<float> product = product_of(a, b, c);
    kernels_.rows_times_panels(product, 0, rows);
    for (Index r = 0; r < rows; ++r) {
      for (Index i = 0; i < n; ++i) ASSERT_EQ(std::isfinite(c.at(r, i)), r != rows / 2) << r << ", " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, PackedMatrix,
                         testing::Combine(testing::Values<Index>(1, 7, 12, 26, 101), testing::Values<Index>(1, 37, 300),
                                          testing::Values<Index>(1, 31, 33, 100),
                                          testing::ValuesIn(cpu::available_isas())));

}  // namespace
}  // namespace penstock::ops
