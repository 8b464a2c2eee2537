#pragma once

#include <cmath>
#include <cstdint>

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

/// The mask of one call, the same on every device.
class DropoutMask {
 public:
  DropoutMask(const Dropout& dropout, std::uint64_t seed)
      : key_(counter_random::key_of(seed, dropout.site)),
        threshold_(static_cast<std::uint32_t>(std::ldexp(dropout.probability, 32))) {}

  /// Of a call on a CPU.
  DropoutMask(const Dropout& dropout, const Call& call)
      : DropoutMask(dropout, call.device_seed != nullptr ? std::uint64_t{*call.device_seed} : call.seed) {}

  bool keeps(Index i) const { return counter_random::keeps(key_, static_cast<counter_random::Word>(i), threshold_); }

 private:
  counter_random::Word key_;
  std::uint32_t threshold_;
};

/// x -> y, `width` values a position: the dropout of x, and of a gradient of y what that of x is. y may be x.
Op dropout(Index width, const Dropout& shape);

/// x, branch [B, T, width] -> x + branch, with dropout of the branch in training. The sum may be either of them.
Op residual_sum(Index width, const Dropout& shape);

}  // namespace penstock::ops
