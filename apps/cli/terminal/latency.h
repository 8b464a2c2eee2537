#pragma once

#include <array>
#include <chrono>
#include <string>

#include "penstock/types.h"

namespace penstock::cli {

/// How long steps took, in a fixed amount of memory however many there are: a histogram whose buckets are 1 % wide.
class Latency {
 public:
  using Clock = std::chrono::steady_clock;

  void record(Clock::duration duration);
  /// The time, in microseconds, within which this fraction of the steps was done (to the width of a bucket).
  double percentile(double fraction) const;
  /// "1,024 steps, p50 12.1 us, p99 14.0 us, longest 31.9 us"
  std::string summary() const;

 private:
  static constexpr int buckets_per_octave = 64;
  static constexpr int octaves = 40;  // of nanoseconds: up to 18 minutes
  std::array<Index, static_cast<std::size_t>(buckets_per_octave* octaves)> counts_{};
  Index steps_ = 0;
  double longest_ = 0.0;  // microseconds
};

}  // namespace penstock::cli
