#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "oracle/tolerance.h"

namespace penstock::test {

using oracle::backward_terms;
using oracle::forward_terms;
using oracle::tolerance;
using oracle::Work;

/// |got - want| <= tolerance * max(terms, max |want|) for every value; NaN is never close.
template <class Got, class Want>
testing::AssertionResult close(const std::vector<Got>& got, const std::vector<Want>& want, double tolerance,
                               double terms) {
  if (got.size() != want.size()) {
    return testing::AssertionFailure() << got.size() << " values instead of " << want.size();
  }
  double scale = terms, worst = -1.0;
  std::size_t at = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double error = std::abs(static_cast<double>(got[i]) - static_cast<double>(want[i]));
    scale = std::max(scale, std::abs(static_cast<double>(want[i])));
    if (!(error <= worst)) {
      worst = error;
      at = i;
    }
    if (std::isnan(error)) break;
  }
  if (worst <= tolerance * scale) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "value " << at << " of " << want.size() << " is " << got[at] << " instead of "
                                     << want[at] << ": off by " << worst / scale << " of the scale " << scale
                                     << ", allowed " << tolerance;
}

/// Equality to the bit, so that -0 differs from 0 and a NaN equals itself.
template <class Real>
testing::AssertionResult same_bits(const std::vector<Real>& got, const std::vector<Real>& want) {
  if (got.size() != want.size()) {
    return testing::AssertionFailure() << got.size() << " values instead of " << want.size();
  }
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (std::memcmp(&got[i], &want[i], sizeof(Real)) != 0) {
      return testing::AssertionFailure() << "value " << i << " of " << want.size() << " is " << got[i] << " instead of "
                                         << want[i] << " (difference " << got[i] - want[i] << ")";
    }
  }
  return testing::AssertionSuccess();
}

}  // namespace penstock::test
