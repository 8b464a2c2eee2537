#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "penstock/types.h"

namespace penstock {

/// Returns whether one of `count` values is denormal: not zero, but below 1.2e-38 (double: 2.2e-308).
template <class Real>
bool has_denormals(const Real* values, Index count) {
  constexpr Real least = std::numeric_limits<Real>::min();
  // Without a branch, so that the compiler takes whole vectors of them.
  int found = 0;
  for (Index i = 0; i < count; ++i) {
    const Real size = std::abs(values[i]);
    found |= static_cast<int>(size < least) & static_cast<int>(size > Real(0));
  }
  return found != 0;
}

/// How a thread treats denormal numbers: as the standard says, or as zeros. With them some processors are up to a
/// hundred times slower.
class DenormalMode {
 public:
  static DenormalMode of_this_thread();
  static DenormalMode zeros();
  /// Sets this thread's mode and returns the one before.
  DenormalMode set() const;

 private:
  explicit DenormalMode(unsigned bits) : bits_(bits) {}
  unsigned bits_;
};

/// While it lives, this thread computes in that mode.
class WithDenormals {
 public:
  explicit WithDenormals(DenormalMode mode) : before_(mode.set()) {}
  ~WithDenormals() { before_.set(); }
  WithDenormals(const WithDenormals&) = delete;
  WithDenormals& operator=(const WithDenormals&) = delete;

 private:
  DenormalMode before_;
};

}  // namespace penstock
