#pragma once

namespace penstock {

/// Sums of the samples of a target and of the differences of a sound from it, for its error-to-signal ratio and its
/// error of the mean (Wright and Valimaki 2020).
struct SoundErrors {
  double emphasis = 0.0;  ///< p of the pre-emphasis filter x_t - p x_{t-1} for the ESR; 0: none. Before x_0 is silence.
  double floor = 0.0;     ///< Power that the target has at least, beyond its own.

  double count = 0.0, sum = 0.0, power = 0.0;       ///< Samples; sum of the differences; squares of the target.
  double filtered_error = 0.0, filtered_power = 0;  ///< Squares of differences and of the target, both filtered.
  double last_difference = 0.0, last_target = 0.0;

  void add(double difference, double target) {
    const double error = difference - emphasis * last_difference, signal = target - emphasis * last_target;
    ++count;
    sum += difference;
    power += target * target;
    filtered_error += error * error;
    filtered_power += signal * signal;
    last_difference = difference;
    last_target = target;
  }

  /// Power of the difference / power of the target, both filtered.
  double esr() const { return filtered_error / esr_scale(); }
  /// Squared mean of the difference / power of the target.
  double dc() const { return sum * sum / dc_scale(); }
  double esr_scale() const { return filtered_power + floor * count; }
  double dc_scale() const { return count * (power + floor * count); }
};

}  // namespace penstock
