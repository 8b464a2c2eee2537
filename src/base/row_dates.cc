#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "penstock/data.h"

namespace penstock {

namespace {

constexpr double day = 86400.0;

/// How many working days stand before the one of a date, counted from some Monday on; of a Saturday or Sunday as of the
/// Monday that follows.
double working_days_before(double seconds) {
  constexpr double monday = 4.0;  // the first of 1970 was a Thursday
  const double number = std::floor(seconds / day) - monday, week = std::floor(number / 7.0);
  return 5.0 * week + std::min(number - 7.0 * week, 5.0);
}

bool is_working_day(double seconds) { return working_days_before(seconds + day) > working_days_before(seconds); }

}  // namespace

double RowDates::missing_between(double before, double after) const {
  const double rows =
      working_days ? working_days_before(after) - working_days_before(before) : std::round((after - before) / step);
  return std::max(rows - 1.0, 0.0);
}

std::vector<double> RowDates::between(double before, double after) const {
  const auto count = static_cast<Index>(missing_between(before, after));
  std::vector<double> dates;
  // Months differ in length: dates are spread evenly, which does for whatever is as long as they are.
  const double apart = working_days ? day : (after - before) / static_cast<double>(count + 1);
  for (double date = before + apart; static_cast<Index>(dates.size()) < count; date += apart) {
    if (!working_days || is_working_day(date)) dates.push_back(date);
  }
  return dates;
}

bool RowDates::is_regular(double before, double after) const {
  if (missing_between(before, after) > 0.0 || !(after > before)) return false;
  if (working_days && after - before > 1.5 * day) return true;
  // Months and years differ in length, and clocks are put forward.
  const double tolerance = step < day ? 1.5 : step > 8.0 * day ? 0.12 * step : 4000.0;
  return std::abs(after - before - step) <= tolerance;
}

}  // namespace penstock
