// The gate functions keep the bounds that stand beside them in cells/gate_functions.h, on every instruction set.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/test_functions.cc"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "backend/cpu/instruction_sets.h"
#include "backend/cpu/isa.h"
#include "penstock/types.h"

#include <hwy/foreach_target.h>  // must come before highway.h

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace penstock::cpu::HWY_NAMESPACE {
namespace {

#include "backend/cpu/target.inl"

template <class L = Lanes<float>, class Function>
void Apply(const std::vector<float>& x, std::vector<float>& y, const Function& function) {
  const auto n = static_cast<Index>(x.size());
  y.resize(x.size());
  for (Index i = 0; i < n; i += L::lanes) {
    const Index count = std::min<Index>(L::lanes, n - i);
    L::store(function(L::load(x.data() + i, count)), y.data() + i, count);
  }
}

}  // namespace

void ApplyExp(const std::vector<float>& x, std::vector<float>& y) {
  Apply(x, y, [](Simd v) HWY_ATTR { return Exp(v); });
}
void ApplyTanh(const std::vector<float>& x, std::vector<float>& y) {
  Apply(x, y, [](Simd v) HWY_ATTR { return Tanh(v); });
}
void ApplySigmoid(const std::vector<float>& x, std::vector<float>& y) {
  Apply(x, y, [](Simd v) HWY_ATTR { return Sigmoid(v); });
}
void ApplyMinusSigmoid(const std::vector<float>& x, std::vector<float>& y) {
  Apply(x, y, [](Simd v) HWY_ATTR {
    Simd of_x, of_minus_x;
    Sigmoids(v, of_x, of_minus_x);
    return of_minus_x;
  });
}
void ApplySoftplus(const std::vector<float>& x, std::vector<float>& y) {
  Apply(x, y, [](Simd v) HWY_ATTR { return Softplus(v); });
}

void ApplyQuickTanh(const std::vector<float>& x, std::vector<float>& y) {
  Apply(x, y, [](QuickSimd v) HWY_ATTR { return Tanh(v); });
}
void ApplyQuickSigmoid(const std::vector<float>& x, std::vector<float>& y) {
  Apply(x, y, [](QuickSimd v) HWY_ATTR { return Sigmoid(v); });
}

#if PENSTOCK_NARROW_VECTORS
void ApplyNarrowTanh(const std::vector<float>& x, std::vector<float>& y) {
  Apply<SimdLanes<NarrowSimd>>(x, y, [](NarrowSimd v) HWY_ATTR { return Tanh(v); });
}
void ApplyNarrowSigmoid(const std::vector<float>& x, std::vector<float>& y) {
  Apply<SimdLanes<NarrowSimd>>(x, y, [](NarrowSimd v) HWY_ATTR { return Sigmoid(v); });
}
#else
void ApplyNarrowTanh(const std::vector<float>&, std::vector<float>& y) { y.clear(); }
void ApplyNarrowSigmoid(const std::vector<float>&, std::vector<float>& y) { y.clear(); }
#endif

}  // namespace penstock::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <gtest/gtest.h>

namespace penstock::cpu {

HWY_EXPORT(ApplyExp);
HWY_EXPORT(ApplyTanh);
HWY_EXPORT(ApplySigmoid);
HWY_EXPORT(ApplyMinusSigmoid);
HWY_EXPORT(ApplySoftplus);
HWY_EXPORT(ApplyQuickTanh);
HWY_EXPORT(ApplyQuickSigmoid);
HWY_EXPORT(ApplyNarrowTanh);
HWY_EXPORT(ApplyNarrowSigmoid);

namespace {

using Values = std::vector<float>;

void run_exp(const Values& x, Values& y) { HWY_DYNAMIC_DISPATCH(ApplyExp)(x, y); }
void run_tanh(const Values& x, Values& y) { HWY_DYNAMIC_DISPATCH(ApplyTanh)(x, y); }
void run_sigmoid(const Values& x, Values& y) { HWY_DYNAMIC_DISPATCH(ApplySigmoid)(x, y); }
void run_minus_sigmoid(const Values& x, Values& y) { HWY_DYNAMIC_DISPATCH(ApplyMinusSigmoid)(x, y); }
void run_softplus(const Values& x, Values& y) { HWY_DYNAMIC_DISPATCH(ApplySoftplus)(x, y); }
void run_quick_tanh(const Values& x, Values& y) { HWY_DYNAMIC_DISPATCH(ApplyQuickTanh)(x, y); }
void run_quick_sigmoid(const Values& x, Values& y) { HWY_DYNAMIC_DISPATCH(ApplyQuickSigmoid)(x, y); }
void run_narrow_tanh(const Values& x, Values& y) { HWY_DYNAMIC_DISPATCH(ApplyNarrowTanh)(x, y); }
void run_narrow_sigmoid(const Values& x, Values& y) { HWY_DYNAMIC_DISPATCH(ApplyNarrowSigmoid)(x, y); }

/// Every 1,009th float from -limit to limit, both zeros and the limits themselves.
std::vector<float> samples(float limit) {
  std::vector<float> x = {0.0f, -0.0f, limit, -limit};
  const auto last = std::bit_cast<std::uint32_t>(limit);
  for (std::uint32_t bits = 1; bits < last; bits += 1009) {
    x.push_back(std::bit_cast<float>(bits));
    x.push_back(-x.back());
  }
  return x;
}

/// Distance of a float from the true value, in units of the float's last place there (at least the smallest normal's).
double ulps(float got, double wanted) {
  const double magnitude = std::max(std::abs(wanted), double(std::numeric_limits<float>::min()));
  const double unit = std::ldexp(1.0, std::ilogb(magnitude) - 23);
  return std::abs(got - wanted) / unit;
}

using Applied = void (*)(const std::vector<float>&, std::vector<float>&);

class Functions : public testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override { use_isa(GetParam()); }
  void TearDown() override { use_isa(available_isas().front()); }

  void expect_within(double bound, float limit, Applied applied, double (*reference)(double)) {
    const std::vector<float> x = samples(limit);
    std::vector<float> y;
    applied(x, y);
    double worst = 0;
    float where = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double error = ulps(y[i], reference(x[i]));
      if (!(error <= worst)) worst = error, where = x[i];
    }
    EXPECT_LE(worst, bound) << "at " << where;
    RecordProperty("worst_ulp", std::to_string(worst));
  }
};

TEST_P(Functions, ExpWithin2Ulp) {
  expect_within(2, 87.0f, run_exp, [](double x) { return std::exp(x); });
}

TEST_P(Functions, TanhWithin4Ulp) {
  expect_within(4, 100.0f, run_tanh, [](double x) { return std::tanh(x); });
}

TEST_P(Functions, SigmoidWithin4UlpOrFarOut5) {
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  expect_within(4, 50.0f, run_sigmoid, sigmoid);
  expect_within(5, 87.0f, run_sigmoid, sigmoid);
}

TEST_P(Functions, MinusSigmoidWithin4UlpOrFarOut5) {
  const auto minus_sigmoid = [](double x) { return 1 / (1 + std::exp(x)); };
  expect_within(4, 50.0f, run_minus_sigmoid, minus_sigmoid);
  expect_within(5, 87.0f, run_minus_sigmoid, minus_sigmoid);
}

TEST_P(Functions, SoftplusWithin4Ulp) {
  expect_within(4, 87.0f, run_softplus, [](double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); });
}

// The functions of networks in bfloat16.
TEST_P(Functions, QuickOnesKeepTheirBounds) {
  constexpr double epsilon = 0x1p-24;  // of a float's own rounding
  const std::vector<float> x = samples(87.0f);
  std::vector<float> sigmoid, tanh;
  run_quick_sigmoid(x, sigmoid);
  run_quick_tanh(x, tanh);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double share = 1 / (1 + std::exp(-double{x[i]})), rest = 1 / (1 + std::exp(double{x[i]}));
    // The power's argument is rounded, too.
    const double power = 0x1p-18 + 2 * epsilon * std::abs(x[i]);
    ASSERT_LE(std::abs(sigmoid[i] - share), share * rest * power + 4 * epsilon * share) << "sigmoid " << x[i];
    ASSERT_LE(std::abs(sigmoid[i] - share), 0x1p-20 + 4 * epsilon) << "sigmoid " << x[i];
    ASSERT_LE(std::abs(tanh[i] - std::tanh(double{x[i]})), 0x1p-19 + 4 * epsilon) << "tanh " << x[i];
    ASSERT_TRUE(x[i] != 0 || tanh[i] == 0);
  }
}

TEST_P(Functions, ExtremesStayInRange) {
  constexpr float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {inf, -inf, 1e30f, -1e30f};
  std::vector<float> y;
  run_exp(x, y);
  EXPECT_TRUE(std::isfinite(y[0]) && y[0] > 8e37f);
  EXPECT_TRUE(y[1] > 0 && y[1] < 2e-38f);
  run_tanh(x, y);
  EXPECT_EQ(y, (std::vector<float>{1, -1, 1, -1}));
  run_sigmoid(x, y);
  EXPECT_EQ(y[0], 1.0f);
  EXPECT_LT(y[1], 1e-37f);
  run_quick_tanh(x, y);
  EXPECT_EQ(y, (std::vector<float>{1, -1, 1, -1}));
  run_quick_sigmoid(x, y);
  EXPECT_EQ(y[0], 1.0f);
  EXPECT_TRUE(y[1] > 0 && y[1] < 2e-38f);
  run_minus_sigmoid(x, y);
  EXPECT_LT(y[0], 1e-37f);
  EXPECT_FLOAT_EQ(y[1], 1.0f);
  run_softplus(x, y);
  EXPECT_EQ(y[2], 1e30f);
  EXPECT_LT(y[3], 2e-38f);
}

TEST_P(Functions, NanGetsThrough) {
  const std::vector<float> x(17, std::numeric_limits<float>::quiet_NaN());
  for (const Applied applied :
       {run_exp, run_tanh, run_sigmoid, run_minus_sigmoid, run_softplus, run_quick_tanh, run_quick_sigmoid}) {
    std::vector<float> y;
    applied(x, y);
    for (const float value : y) EXPECT_TRUE(std::isnan(value));
  }
}

// A stream has the bits of the sequence, whose vectors may be the wider ones.
TEST_P(Functions, NarrowVectorsHaveTheSameBits) {
  const std::vector<float> x = samples(100.0f);
  for (const auto& [narrow, whole] :
       {std::pair<Applied, Applied>(run_narrow_tanh, run_tanh), {run_narrow_sigmoid, run_sigmoid}}) {
    std::vector<float> y, wanted;
    narrow(x, y);
    if (y.empty()) GTEST_SKIP() << GetParam() << " has no narrower vectors";
    whole(x, wanted);
    EXPECT_EQ(y, wanted);
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, Functions, testing::ValuesIn(available_isas()),
                         [](const auto& isa) { return std::string(isa.param); });

}  // namespace
}  // namespace penstock::cpu

#endif  // HWY_ONCE
