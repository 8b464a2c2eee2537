#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "penstock/types.h"

/// The error of a correct computation in another precision relative to the oracle: one formula for tests and
/// benchmarks.
namespace oracle {

using penstock::Index;

/// The amount of arithmetic between the arguments and a result.
struct Work {
  Index summed = 1;  ///< Terms of the longest sum: I + H for outputs, also B * T for gradients of weights.
  Index steps = 1;   ///< T * layers, over which rounding errors propagate.
  bool backward = false;
  double logit = 1.0;  ///< Largest absolute value of a gate's argument.
};

/// Returns the allowed difference between two correct computations in Real, relative to the largest value of a tensor.
///
///   eps * (8 + sqrt(summed)) * log2(1 + steps) * max(1, logit) * (backward ? 2 : 1)
///
/// - sqrt(summed): rounding errors of a sum have either sign and add up like a random walk.
/// - 8: gate functions have errors of a few units in the last place, and a cell applies few operations.
/// - log2(1 + steps): an error at one step reaches later steps through a recurrence that forgets. It grows far more
///   slowly than T; the logarithm covers slow forgetting.
/// - logit: rounding an argument of size a changes exp(a) by a factor of 1 + eps * a.
/// - backward: the backward pass uses rounded results of the forward pass and rounds again, which doubles the error.
template <class Real>
double tolerance(const Work& work) {
  const double eps = std::numeric_limits<Real>::epsilon();
  const double growth = std::log2(1.0 + static_cast<double>(work.steps));
  return eps * (8.0 + std::sqrt(static_cast<double>(work.summed))) * growth * std::max(1.0, work.logit) *
         (work.backward ? 2.0 : 1.0);
}

/// Typical size of the terms of a result, for results that are small only because their terms cancel. States are of
/// order 1; terms of gradients have a weight and a derivative of a gate as further factors.
constexpr double forward_terms = 1.0;
constexpr double backward_terms = 0.1;

}  // namespace oracle
