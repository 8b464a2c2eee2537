#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/random.h"
#include "penstock/types.h"

namespace penstock::test {

inline std::vector<double> random_values(Random& random, Index count, double scale = 1.0) {
  std::vector<double> values(static_cast<std::size_t>(count));
  for (double& value : values) value = scale * random.normal();
  return values;
}

/// Compares `gradient` with central differences of `loss` by each of `values`, which are put back afterwards.
/// The formula over five points errs by step^4 times the fifth derivative / 30: even where a norm of few channels makes
/// that 1e8, less than the rounding of the loss, which is about 1e-16 / step.
inline void expect_gradient(const std::string& name, std::span<double> values, std::span<const double> gradient,
                            const std::function<double()>& loss, double bound = 1e-7) {
  ASSERT_EQ(values.size(), gradient.size()) << name;
  constexpr double step = 2e-5;
  double largest = 0.0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double kept = values[i];
    const auto at = [&](double offset) {
      values[i] = kept + offset;
      return loss();
    };
    const double numeric = (8.0 * (at(step) - at(-step)) - (at(2.0 * step) - at(-2.0 * step))) / (12.0 * step);
    values[i] = kept;
    ASSERT_NEAR(gradient[i], numeric, bound * (1.0 + std::abs(numeric))) << name << "[" << i << "]";
    largest = std::max(largest, std::abs(numeric));
  }
  // A loss that does not depend on the values would pass with any bug.
  EXPECT_GT(largest, 1e-4) << name;
}

}  // namespace penstock::test
