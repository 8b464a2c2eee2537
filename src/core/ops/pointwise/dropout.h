#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "backend/cpu/element_kernels.h"
#include "base/counter_random.h"
#include "ops/op.h"

namespace penstock::ops {

/// Zeroes values with probability p and divides the others by 1 - p. The mask is a function of the call's seed, the
/// site and the value's place in the tensor, so nothing is stored and the backward pass draws the same one.
struct Dropout {
  double probability = 0.0;
  std::uint64_t site = 0;  ///< Tells the dropouts of a model apart.

  double scale() const { return 1.0 / (1.0 - probability); }
};

/// Factors of the values in one call on a CPU: 1 / (1 - p) for kept values, 0 for dropped ones. Every device keeps the
/// same values.
template <class Real>
class DropoutFactors {
 public:
  DropoutFactors(const Dropout& dropout, const Call& call)
      : DropoutFactors(dropout, call.device_seed != nullptr ? std::uint64_t{*call.device_seed} : call.seed) {}
  DropoutFactors(const Dropout& dropout, std::uint64_t seed)
      : key_(counter_random::key_of(seed, dropout.site)),
        threshold_(static_cast<std::uint32_t>(std::ldexp(dropout.probability, 32))),
        kept_(static_cast<Real>(dropout.scale())) {}

  /// body(i, factor) for the values begin <= i < end of the tensor.
  template <class Body>
  void for_each(Index begin, Index end, const Body& body) const {
    Real factors[chunk];
    for (Index first = begin; first < end; first += chunk) {
      const Index count = std::min(chunk, end - first);
      keep_factors_(key_, threshold_, first, count, kept_, factors);
      for (Index i = 0; i < count; ++i) body(first + i, factors[i]);
    }
  }

 private:
  static constexpr Index chunk = 256;

  counter_random::Word key_;
  std::uint32_t threshold_;
  Real kept_;
  decltype(cpu::ElementKernels<Real>::keep_factors) keep_factors_ = cpu::element_kernels<Real>().keep_factors;
};

/// UnaryOperand, `width` values a position: the dropout of x, and of a gradient of y that of x. y may be x.
Op dropout(Index width, const Dropout& shape);

struct ResidualSum {
  Index width = 1;
};

/// Writes sum = x + branch [B, T, width], with dropout of the branch in training. The sum may be either of them.
struct ResidualSumOperand {
  enum : int { x, branch, sum };
};
Op residual_sum(Index width, const Dropout& shape);

}  // namespace penstock::ops
