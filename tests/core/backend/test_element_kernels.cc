// Loops over single values, on every instruction set of this build and chip, at lengths around those of its vectors.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "backend/cpu/element_kernels.h"
#include "backend/cpu/instruction_sets.h"
#include "backend/cpu/isa.h"
#include "base/counter_random.h"
#include "base/random.h"

namespace penstock::cpu {
namespace {

constexpr Index kLengths[] = {1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 64, 257};
constexpr double kRounding = 0x1p-24;  // half a unit in the last place of a float

class ElementKernelsOf : public testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override { use_isa(GetParam()); }
  void TearDown() override { use_isa(available_isas().front()); }

  std::vector<float> normals(Index n) {
    std::vector<float> x(static_cast<std::size_t>(n));
    for (float& value : x) value = static_cast<float>(random_.normal());
    return x;
  }

 private:
  Random random_{5};
};

TEST_P(ElementKernelsOf, FactorsAreThoseOfTheCounter) {
  const auto key = counter_random::key_of(7, 3);
  const auto threshold = static_cast<unsigned>(std::ldexp(0.3, 32));
  for (const Index first : {Index{0}, Index{5}, (Index{1} << 33) - 3}) {
    for (const Index n : kLengths) {
      std::vector<float> factors(static_cast<std::size_t>(n) + 1, -1.0f);
      std::vector<double> wide(static_cast<std::size_t>(n) + 1, -1.0);
      element_kernels<float>().keep_factors(key, threshold, first, n, 1.25f, factors.data());
      element_kernels<double>().keep_factors(key, threshold, first, n, 1.25, wide.data());
      for (Index i = 0; i < n; ++i) {
        const bool keeps = counter_random::keeps(key, static_cast<counter_random::Word>(first + i), threshold);
        EXPECT_EQ(factors[static_cast<std::size_t>(i)], keeps ? 1.25f : 0.0f) << first << " + " << i << " of " << n;
        EXPECT_EQ(wide[static_cast<std::size_t>(i)], keeps ? 1.25 : 0.0) << first << " + " << i << " of " << n;
      }
      EXPECT_EQ(factors.back(), -1.0f);
      EXPECT_EQ(wide.back(), -1.0);
    }
  }
}

TEST_P(ElementKernelsOf, NormsAreThoseOfDoubles) {
  for (const Index width : kLengths) {
    const auto n = static_cast<std::size_t>(width);
    const std::vector<float> x = normals(width), gain = normals(width);
    std::vector<float> y(n + 1, -7.0f);
    const float scale = element_kernels<float>().rms_norm(width, 1e-3f, x.data(), gain.data(), y.data());
    double squares = 0;
    for (const float value : x) squares += double{value} * value;
    const double wanted = 1 / std::sqrt(squares / static_cast<double>(width) + 1e-3);
    const double tolerance = kRounding * (static_cast<double>(width) + 8);
    EXPECT_NEAR(scale, wanted, tolerance * wanted) << width;
    for (std::size_t c = 0; c < n; ++c) {
      const double value = double{gain[c]} * x[c] * wanted;
      EXPECT_NEAR(y[c], value, tolerance * std::abs(value)) << c << " of " << width;
    }
    EXPECT_EQ(y.back(), -7.0f);
  }
}

TEST_P(ElementKernelsOf, GradientsOfNormsAreThoseOfDoubles) {
  for (const Index width : kLengths) {
    for (const bool sums : {false, true}) {
      const auto n = static_cast<std::size_t>(width);
      const float inverse = 0.7f;
      const std::vector<float> x = normals(width), gain = normals(width), dy = normals(width), before = normals(width);
      std::vector<float> dx = normals(width), dgain = before;
      const std::vector<float> dsum = dx;
      dx.push_back(-7.0f);
      dgain.push_back(-7.0f);
      element_kernels<float>().rms_norm_backward(width, inverse, x.data(), gain.data(), dy.data(),
                                                 sums ? dx.data() : nullptr, dgain.data(), dx.data());
      double mean = 0, size = 0;
      for (std::size_t c = 0; c < n; ++c) {
        const double term = double{gain[c]} * dy[c] * x[c] * inverse / static_cast<double>(width);
        mean += term, size += std::abs(term);
      }
      const double roundings = kRounding * (static_cast<double>(width) + 12);
      for (std::size_t c = 0; c < n; ++c) {
        const double normal = double{x[c]} * inverse, direct = double{gain[c]} * dy[c];
        const double slope = inverse * (direct - normal * mean) + (sums ? dsum[c] : 0.0);
        const double terms = inverse * (std::abs(direct) + std::abs(normal) * size) + std::abs(dsum[c]);
        EXPECT_NEAR(dx[c], slope, roundings * terms) << c << " of " << width;
        const double grown = before[c] + dy[c] * normal;
        EXPECT_NEAR(dgain[c], grown, 4 * kRounding * (std::abs(before[c]) + std::abs(dy[c] * normal)));
      }
      EXPECT_EQ(dx.back(), -7.0f);
      EXPECT_EQ(dgain.back(), -7.0f);
    }
  }
}

// The values of a step are those of these operations, one by one, so weights do not depend on the instruction set here.
TEST_P(ElementKernelsOf, OptimisersAreTheSameToTheLastBit) {
  const OptimizerCoefficients args{.beta1 = 0.9f, .rest1 = 0.1f, .beta2 = 0.99f, .rest2 = 0.01f, .epsilon = 1e-8f};
  StepState state{};
  state.gradient_factor = 0.37f, state.rate = 0.003f, state.root_correction = 1.7f;
  state.average_rest = 0.1f;
  constexpr float keep = 0.999f;
  for (const OptimizerKind kind : {OptimizerKind::adamw, OptimizerKind::sgd, OptimizerKind::lion,
                                   OptimizerKind::rmsprop, OptimizerKind::average}) {
    for (const Index n : kLengths) {
      const std::vector<float> gradients = normals(n);
      std::vector<float> values = normals(n), first = normals(n), second = normals(n);
      for (float& v : second) v = std::abs(v);
      if (kind == OptimizerKind::rmsprop) first = second;
      std::vector<float> wanted = values, m = first, v = second;
      for (std::size_t i = 0; i < values.size(); ++i) {
        const float g = gradients[i] * state.gradient_factor;
        if (kind == OptimizerKind::adamw) {
          m[i] = args.beta1 * m[i] + args.rest1 * g;
          v[i] = args.beta2 * v[i] + args.rest2 * g * g;
          const float root = std::sqrt(v[i]) * state.root_correction + args.epsilon;
          wanted[i] = keep * wanted[i] - state.rate * m[i] / root;
        } else if (kind == OptimizerKind::lion) {
          const float mean = args.beta1 * m[i] + args.rest1 * g;
          wanted[i] = keep * wanted[i] - state.rate * static_cast<float>((mean > 0.0f) - (mean < 0.0f));
          m[i] = args.beta2 * m[i] + args.rest2 * g;
        } else if (kind == OptimizerKind::average) {
          m[i] = m[i] + state.average_rest * (wanted[i] - m[i]);
        } else if (kind == OptimizerKind::rmsprop) {
          m[i] = args.beta2 * m[i] + args.rest2 * g * g;
          wanted[i] = keep * wanted[i] - state.rate * g / (std::sqrt(m[i]) + args.epsilon);
        } else {
          m[i] = args.beta1 * m[i] + g;
          wanted[i] = keep * wanted[i] - state.rate * m[i];
        }
      }
      for (auto* store : {&values, &first, &second, &wanted, &m, &v}) store->push_back(-7.0f);
      element_kernels<float>().update(kind)(args, state, keep, n, gradients.data(), values.data(), first.data(),
                                            second.data());
      EXPECT_EQ(values, wanted) << n;
      EXPECT_EQ(first, m) << n;
      EXPECT_EQ(second, v) << n;
    }
  }
}

TEST_P(ElementKernelsOf, WhatIsNotFiniteGetsThrough) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::vector<float> x(19, 1.0f);
    const std::vector<float> gain(19, 1.0f);
    std::vector<float> y(19);
    x[17] = bad;
    element_kernels<float>().rms_norm(19, 1e-6f, x.data(), gain.data(), y.data());
    EXPECT_TRUE(std::isnan(y[17]));
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, ElementKernelsOf, testing::ValuesIn(available_isas()),
                         [](const auto& isa) { return std::string(isa.param); });

}  // namespace
}  // namespace penstock::cpu
