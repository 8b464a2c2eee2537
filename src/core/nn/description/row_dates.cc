#include "penstock/description/row_dates.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/check.h"
#include "base/names.h"

namespace penstock {

namespace {

constexpr Names<2> undated_names = {"refuse", "drop"};
constexpr Names<5> irregular_names = {"auto", "ignore", "elapsed", "fill", "refuse"};
constexpr double a_day = 86400.0, an_hour = 3600.0;

/// Returns the number of working days before a date, counted from some Monday on; a Saturday or Sunday counts as the
/// Monday that follows.
double working_days_before(double seconds) {
  constexpr double monday = 4.0;  // the first of 1970 was a Thursday
  const double number = std::floor(seconds / a_day) - monday, week = std::floor(number / 7.0);
  return 5.0 * week + std::min(number - 7.0 * week, 5.0);
}

/// Returns whether clocks are put forward, or back, on this day somewhere in the world, by today's rules or those since
/// 1970: a Sunday.
bool may_change_clocks(double seconds, bool forward) {
  namespace chrono = std::chrono;
  const chrono::sys_days date{chrono::days{static_cast<int>(std::floor(seconds / a_day))}};
  if (chrono::weekday{date} != chrono::Sunday) return false;
  const chrono::year_month_day today{date};
  const unsigned number = (static_cast<unsigned>(today.day()) - 1) / 7;
  const bool first = number == 0, last = chrono::year_month_day{date + chrono::days{7}}.month() != today.month();
  switch (static_cast<unsigned>(today.month())) {
    case 3:
      return forward && (last || number == 1);  // Europe, North America
    case 4:
      return first || (forward && last);  // back in the south; forward in North America up to 2006
    case 9:
      return last || (forward && first);  // forward in New Zealand and Chile; back in Europe up to 1995
    case 10:
      return forward ? first : last;  // Australia; Europe
    case 11:
      return !forward && first;  // North America
    default:
      return false;
  }
}

/// Returns the start of the hour that clocks may have skipped within a gap of more than one row; NaN: none. Rows
/// missing around exactly that hour seldom have another cause. In a gap of more than a day they may.
double skipped_hour(double step, double before, double after) {
  if (step > an_hour || after - before <= step || after - before > a_day) return std::nan("");
  for (const double date : {before, after}) {
    const double midnight = a_day * std::floor(date / a_day);
    if (!may_change_clocks(midnight, true)) continue;
    for (const double begin : {2.0, 1.0, 3.0, 0.0}) {  // most of Europe and North America first
      const double change = midnight + begin * an_hour;
      if (before < change && after >= change + an_hour) return change;
    }
  }
  return std::nan("");
}

bool is_working_day(double seconds) { return working_days_before(seconds + a_day) > working_days_before(seconds); }

}  // namespace

std::string_view to_string(Undated undated) { return name_of(undated_names, undated); }
Undated parse_undated(std::string_view text) { return parse_name<Undated>("undated", undated_names, text); }
std::string_view to_string(Irregular irregular) { return name_of(irregular_names, irregular); }
Irregular parse_irregular(std::string_view text) { return parse_name<Irregular>("irregular", irregular_names, text); }

double RowDates::seconds_between(double before, double after) const {
  constexpr double tolerance = 1.5, night = 4.0 * an_hour;
  const double apart = after - before;
  if (!std::isnan(skipped_hour(step, before, after))) return apart - an_hour;
  if (!(step < a_day) || std::abs(std::abs(apart - step) - an_hour) > tolerance) return apart;
  const double midnight = a_day * std::floor(std::max(before, after) / a_day);
  const bool at_night = std::max(before, after) > midnight && std::min(before, after) < midnight + night;
  return at_night && may_change_clocks(midnight, apart > step) ? step : apart;
}

double RowDates::missing_between(double before, double after) const {
  const double rows = working_days ? working_days_before(after) - working_days_before(before)
                                   : std::round(seconds_between(before, after) / step);
  return std::max(rows - 1.0, 0.0);
}

std::vector<double> RowDates::between(double before, double after) const {
  const auto count = static_cast<Index>(missing_between(before, after));
  std::vector<double> dates;
  const double skipped = working_days ? std::nan("") : skipped_hour(step, before, after);
  // Months differ in length: dates are spread evenly, which does for whatever is as long as they are.
  const double apart = working_days ? a_day : seconds_between(before, after) / static_cast<double>(count + 1);
  for (double date = before + apart; static_cast<Index>(dates.size()) < count; date += apart) {
    if (!working_days || is_working_day(date)) dates.push_back(date >= skipped ? date + an_hour : date);
  }
  return dates;
}

bool RowDates::is_regular(double before, double after) const {
  const double apart = seconds_between(before, after);
  if (missing_between(before, after) > 0.0 || !(apart > 0.0)) return false;
  if (working_days && after - before > 1.5 * a_day) return true;
  // Months and years differ in length, and a day has 23 hours where clocks are put forward.
  const double tolerance = step < a_day ? 1.5 : step > 8.0 * a_day ? 0.12 * step : 4000.0;
  return std::abs(apart - step) <= tolerance;
}

}  // namespace penstock
