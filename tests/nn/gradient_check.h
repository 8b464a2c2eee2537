#pragma once

#include <gtest/gtest.h>

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
/// With a step of 1e-5 the formula's own error is about 1e-10 (curvature) plus 1e-11 (rounding), far below the bound.
inline void expect_gradient(const std::string& name, std::span<double> values, std::span<const double> gradient,
                            const std::function<double()>& loss, double bound = 1e-6) {
  ASSERT_EQ(values.size(), gradient.size()) << name;
  constexpr double step = 1e-5;
  double largest = 0.0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double kept = values[i];
    values[i] = kept + step;
    const double above = loss();
    values[i] = kept - step;
    const double below = loss();
    values[i] = kept;
    const double numeric = (above - below) / (2.0 * step);
    ASSERT_NEAR(gradient[i], numeric, bound * (1.0 + std::abs(numeric))) << name << "[" << i << "]";
    largest = std::max(largest, std::abs(numeric));
  }
  // A loss that does not depend on the values would pass with any bug.
  EXPECT_GT(largest, 1e-4) << name;
}

}  // namespace penstock::test
