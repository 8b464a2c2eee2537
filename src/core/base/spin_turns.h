#pragma once

#include <algorithm>
#include <chrono>
#include <limits>

namespace penstock {

/// Microseconds for which idle threads should wait by spinning. Threads between the parts of a training step find their
/// next work within that time. Waking one that sleeps takes 8 us, so longer spinning gains little, and it keeps a core
/// from other threads.
inline constexpr double kSpinMicroseconds = 40;

/// Returns the turns of the loop in which threads of GNU's OpenMP wait that take this time: a value for GOMP_SPINCOUNT,
/// which that library reads when it is loaded. A turn takes 5 to 50 ns, depending on the chip, so it is measured, in
/// some 30 us.
inline long spin_turns(double microseconds) {
  using Clock = std::chrono::steady_clock;
  constexpr int rounds = 5, turns = 200;
  const volatile int never = 0;
  double shortest = std::numeric_limits<double>::infinity();  // other programs interrupt a round
  for (int round = 0; round < rounds; ++round) {
    const auto before = Clock::now();
    for (int i = 0; i < turns && never == 0; ++i) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#else
      asm volatile("" ::: "memory");
#endif
    }
    shortest = std::min(shortest, std::chrono::duration<double, std::micro>(Clock::now() - before).count());
  }
  return static_cast<long>(microseconds * turns / std::max(shortest, 0.1));
}

}  // namespace penstock
