#pragma once

#include <cmath>
#include <cstdint>

#include "penstock/types.h"

namespace penstock::ops {

/// Zeroes values with probability p and divides the others by 1 - p. The mask is a function of the call's seed, the
/// site and the value's place in the tensor, so nothing is stored and the backward pass draws the same one.
struct Dropout {
  double probability = 0.0;
  std::uint64_t site = 0;  ///< Tells the dropouts of a model apart.

  double scale() const { return 1.0 / (1.0 - probability); }
};

/// The mask of one call.
class DropoutMask {
 public:
  DropoutMask(const Dropout& dropout, std::uint64_t seed)
      : key_(mix(seed + step * (dropout.site + 1))),
        threshold_(static_cast<std::uint32_t>(std::ldexp(dropout.probability, 32))) {}

  bool keeps(Index i) const {
    return static_cast<std::uint32_t>(mix(key_ + step * static_cast<std::uint64_t>(i)) >> 32) >= threshold_;
  }
  std::uint64_t key() const { return key_; }
  std::uint32_t threshold() const { return threshold_; }

 private:
  static constexpr std::uint64_t step = 0x9e3779b97f4a7c15ULL;

  /// The finaliser of splitmix64, a bijection whose bits look independent of those of its argument.
  static constexpr std::uint64_t mix(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }

  std::uint64_t key_;
  std::uint32_t threshold_;
};

}  // namespace penstock::ops
