#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "penstock/types.h"

/// How far honest arithmetic in another precision may lie from the oracle's: one formula for tests and benchmarks.
namespace oracle {

using penstock::Index;

/// How much arithmetic stands between the arguments and a result.
struct Work {
  Index summed = 1;  ///< Terms of the longest sum: I + H for outputs, also B * T for gradients of weights.
  Index steps = 1;   ///< T * layers: how long rounding errors travel.
  bool backward = false;
  double logit = 1.0;  ///< Greatest size of a gate's argument.
};

/// The error to allow, relative to the largest value of a tensor, between two honest computations in Real.
///
///   eps * (8 + sqrt(summed)) * log2(1 + steps) * max(1, logit) * (backward ? 2 : 1)
///
/// - sqrt(summed): rounding errors of a sum are of either sign and add up like a random walk.
/// - 8: gate functions are good to a few units in the last place, and a cell applies a handful of operations.
/// - log2(1 + steps): an error made at one step reaches later steps through a recurrence that forgets, so it grows
///   far more slowly than T; the logarithm covers what is forgotten slowly.
/// - logit: rounding an argument of size a shifts exp(a) by a factor of 1 + eps * a.
/// - backward uses the rounded results of the forward pass and doubles them, as both passes round.
template <class Real>
double tolerance(const Work& work) {
  const double eps = std::numeric_limits<Real>::epsilon();
  const double growth = std::log2(1.0 + static_cast<double>(work.steps));
  return eps * (8.0 + std::sqrt(static_cast<double>(work.summed))) * growth * std::max(1.0, work.logit) *
         (work.backward ? 2.0 : 1.0);
}

/// Size of the terms behind a result, where the result itself happens to be small because they cancel: states are of
/// order 1; gradients carry a weight and a derivative of a gate more.
constexpr double forward_terms = 1.0;
constexpr double backward_terms = 0.1;

}  // namespace oracle
