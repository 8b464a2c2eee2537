#pragma once

#include <cstddef>
#include <string>
#include <vector>

/// When the rows of a chart were, in seconds since the start of 1970.
namespace penstock::cli::reporting {

/// Those that are not known (NaN) spread evenly between the others; empty if the first or the last one is not known.
std::vector<double> without_gaps(std::vector<double> dates);

/// Behind the last of at least two dates, as many as `count` says: as many months apart as all of them are, where they
/// are always on the same day of a month or on its last one; otherwise as far apart as most of them, on working days if
/// these all are.
std::vector<double> dates_to_come(const std::vector<double>& dates, std::size_t count);

/// As ISO 8601 writes them, as precise as the most precise one has to be: "1949", "1949-01", "1949-01-31",
/// "1949-01-31 12:30", "1949-01-31 12:30:15".
std::vector<std::string> date_texts(const std::vector<double>& dates);

struct DateTick {
  std::size_t row = 0;  ///< From 0
  std::string text;
};

/// Labels for an axis of rows, at most `most`: the first row of every century, year, quarter, month, week, day, hour,
/// ..., as finely as there is room for.
std::vector<DateTick> date_ticks(const std::vector<double>& dates, std::size_t most);

}  // namespace penstock::cli::reporting
