#include "base/denormals.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace penstock {

#if defined(__SSE2__)

namespace {
constexpr unsigned kZeros = _MM_FLUSH_ZERO_ON | 0x0040u;  // results that are denormal, and arguments
}

DenormalMode DenormalMode::of_this_thread() { return DenormalMode(_mm_getcsr() & kZeros); }
DenormalMode DenormalMode::zeros() { return DenormalMode(kZeros); }
DenormalMode DenormalMode::set() const {
  const unsigned now = _mm_getcsr();
  if ((now & kZeros) != bits_) _mm_setcsr((now & ~kZeros) | bits_);
  return DenormalMode(now & kZeros);
}

#else

// Where nothing is known of a mode there is one.
DenormalMode DenormalMode::of_this_thread() { return DenormalMode(0); }
DenormalMode DenormalMode::zeros() { return DenormalMode(0); }
DenormalMode DenormalMode::set() const { return *this; }

#endif

}  // namespace penstock
