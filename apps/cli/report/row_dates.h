#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "penstock/data.h"

/// Dates of the rows of a chart, in seconds since the start of 1970.
namespace penstock::cli::reporting {

/// Range of dates that can be written: about the years 5 to 9,892.
inline constexpr double earliest_date = -6.2e10, latest_date = 2.5e11;

/// Spreads unknown dates (NaN) evenly between the others; empty if the first or the last one is unknown.
std::vector<double> without_gaps(std::vector<double> dates);

/// Behind the last of at least two dates, as many as `count` says: as many months apart as all of them are, where they
/// are always on the same day of a month or on its last one; otherwise as far apart as most of them, on working days if
/// these all are, and at times of the day and on days of the week at which there mostly are rows. `usual`, if given,
/// says how far apart rows were in training: one date is enough then, and a month that is missing or a week without a
/// weekend misleads nobody. Empty if they would lie before earliest_date or behind latest_date.
std::vector<double> dates_to_come(const std::vector<double>& dates, std::size_t count, const RowDates* usual = nullptr);

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
