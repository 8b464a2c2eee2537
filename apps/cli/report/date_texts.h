#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "penstock/data.h"

/// How dates are written, in seconds since the start of 1970.
namespace penstock::cli::reporting {

inline constexpr double minute = 60.0, hour = 3600.0, day = 86400.0, week = 7 * day;
inline constexpr double first_monday = 4 * day;  // 1970 began on a Thursday

std::chrono::year_month_day civil_date(double seconds);

/// Since the start of year 0.
double months_until(double seconds);

/// Returns dates as in ISO 8601, all as precise as the most precise one must be: "1949", "1949-01", "1949-01-31",
/// "1949-01-31 12:30", "1949-01-31 12:30:15".
std::vector<std::string> date_texts(const std::vector<double>& dates);

/// Writes dates as ISO 8601, all in one form: as a year where the data write years, as a day where all begin one,
/// otherwise with the time, and with a fraction of a second where any has one. `utc`: the time and a Z behind it.
class DateWriter {
 public:
  DateWriter(std::span<const double> dates, DateForm form, bool utc = false);
  std::string text(double seconds) const;

 private:
  const char* format_;
  bool fractions_ = false;
  const char* zone_;
};

struct DateTick {
  std::size_t row = 0;  ///< From 0
  std::string text;
};

/// Labels for an axis of rows, at most `most`: the first row of every century, year, quarter, month, week, day, hour,
/// ..., as finely as there is room for.
std::vector<DateTick> date_ticks(const std::vector<double>& dates, std::size_t most);

}  // namespace penstock::cli::reporting
