#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include "penstock/types.h"

namespace penstock {

/// Seconds per call of `call`, from calls that together take about `seconds`; at least one value.
///
/// A first call warms caches and clock and counts only if it alone takes that long; a second one says how long a warm
/// call takes. Calls of less than 20 us, 400 times what reading the clock costs, are timed in groups, unless
/// `each_call` is wanted by itself: a percentile of groups hides the calls that took long.
template <class Call>
std::vector<double> time_calls(double seconds, const Call& call, bool each_call = false) {
  using Clock = std::chrono::steady_clock;
  const double group_seconds = each_call ? 0.0 : 20e-6;
  const auto timed = [&](Index calls) {
    const auto start = Clock::now();
    for (Index i = 0; i < calls; ++i) call();
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  const double first = timed(1);
  if (first >= seconds) return {first};
  const double warm = std::max(std::min(first, timed(1)), 1e-9);
  const auto group = static_cast<Index>(std::clamp(std::ceil(group_seconds / warm), 1.0, 1e5));
  std::vector<double> times;
  for (double total = 0.0; total < seconds;) {
    const double taken = timed(group);
    times.push_back(taken / static_cast<double>(group));
    total += taken;
  }
  return times;
}

/// Seconds of calls that `once` makes and times itself, one after another: of as many as together take about `seconds`,
/// of `fewest` at least, after one to warm up.
template <class Once>
std::vector<double> sample_calls(double seconds, const Once& once, std::size_t fewest = 3) {
  constexpr std::size_t most = 1000;
  std::vector<double> times;
  once();
  for (double total = 0; (total < seconds && times.size() < most) || times.size() < fewest;) {
    times.push_back(once());
    total += times.back();
  }
  return times;
}

/// Distribution of the times of many calls of one contender, in seconds per call.
struct TimeSpread {
  double minimum = 0.0, lower_quartile = 0.0, median = 0.0, upper_quartile = 0.0, maximum = 0.0;
  double percentile_99 = 0.0, percentile_999 = 0.0;  ///< 99 and 99.9 of a hundred calls took no longer.
  Index samples = 0;
};

inline TimeSpread spread(std::vector<double> times) {
  if (times.empty()) return {};
  std::ranges::sort(times);
  const auto at = [&](double fraction) {
    return times[static_cast<std::size_t>(std::lround(fraction * static_cast<double>(times.size() - 1)))];
  };
  return {.minimum = times.front(),
          .lower_quartile = at(0.25),
          .median = at(0.5),
          .upper_quartile = at(0.75),
          .maximum = times.back(),
          .percentile_99 = at(0.99),
          .percentile_999 = at(0.999),
          .samples = static_cast<Index>(times.size())};
}

}  // namespace penstock
