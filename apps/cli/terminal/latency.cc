#include "terminal/latency.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "terminal/units.h"

namespace penstock::cli {

void Latency::record(Clock::duration duration) {
  const double nanoseconds = std::max(1.0, std::chrono::duration<double, std::nano>(duration).count());
  const auto bucket = static_cast<std::size_t>(std::log2(nanoseconds) * buckets_per_octave);
  ++counts_[std::min(bucket, counts_.size() - 1)];
  ++steps_;
  longest_ = std::max(longest_, nanoseconds / 1000.0);
}

double Latency::percentile(double fraction) const {
  const auto rank = static_cast<Index>(std::ceil(fraction * static_cast<double>(steps_)));
  Index below = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    below += counts_[i];
    if (below >= rank && below > 0) {
      const double upper = std::exp2(static_cast<double>(i + 1) / buckets_per_octave) / 1000.0;
      return std::min(upper, longest_);
    }
  }
  return 0.0;
}

std::string Latency::summary() const {
  if (steps_ == 0) return "no steps";
  return fmt::format("{}, p50 {:.1f} us, p99 {:.1f} us, longest {:.1f} us", counted(steps_, "step"), percentile(0.5),
                     percentile(0.99), longest_);
}

}  // namespace penstock::cli
