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
#if defined(__SSE2__)
  static DenormalMode of_this_thread() { return DenormalMode(__builtin_ia32_stmxcsr() & kZeros); }
  static DenormalMode zeros() { return DenormalMode(kZeros); }
  /// Sets this thread's mode and returns the one before.
  DenormalMode set() const {
    if (bits_ == kZeros && are_zeros()) return *this;
    const unsigned now = __builtin_ia32_stmxcsr();
    if ((now & kZeros) != bits_) __builtin_ia32_ldmxcsr((now & ~kZeros) | bits_);
    return DenormalMode(now & kZeros);
  }
#else
  // Where nothing is known of a mode there is one.
  static DenormalMode of_this_thread() { return DenormalMode(0); }
  static DenormalMode zeros() { return DenormalMode(0); }
  DenormalMode set() const { return *this; }
#endif
  bool operator==(const DenormalMode&) const = default;

 private:
#if defined(__SSE2__)
  /// Bits of MXCSR. The first two make denormal results and arguments zeros. The others keep them from raising a
  /// signal, even if the caller has unmasked it.
  static constexpr unsigned kZeros = 0x8040 | 0x0900;

  /// Returns whether this thread takes both for zeros. To read MXCSR, the processor would wait for all arithmetic
  /// before. Sums and comparisons of denormal numbers take no longer than others. A denormal difference is a signal
  /// where underflow is unmasked, so it is taken only behind the comparison, which set() makes true with the mask.
  static bool are_zeros() {
    constexpr float least = std::numeric_limits<float>::min();
    float normal = 1.5f * least, denormal = least / 2;
    asm volatile("" : "+x"(denormal));  // or the compiler would compute by its own mode
    if (denormal != 0.0f) return false;
    asm volatile("" : "+x"(normal));
    return __builtin_bit_cast(unsigned, normal - least) == 0;
  }
#endif

  explicit DenormalMode(unsigned bits) : bits_(bits) {}
  unsigned bits_;
};

/// While it lives, this thread computes in that mode. A mode that is set already is not read again at the end: the
/// processor would wait for all arithmetic before.
class WithDenormals {
 public:
  explicit WithDenormals(DenormalMode mode) : before_(mode.set()), changed_(before_ != mode) {}
  ~WithDenormals() {
    if (changed_) before_.set();
  }
  WithDenormals(const WithDenormals&) = delete;
  WithDenormals& operator=(const WithDenormals&) = delete;

 private:
  DenormalMode before_;
  bool changed_;
};

}  // namespace penstock
