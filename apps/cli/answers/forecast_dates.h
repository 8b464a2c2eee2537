#pragma once

#include <cstddef>
#include <vector>

#include "penstock/data.h"

/// Dates of the rows behind the last one, in seconds since the start of 1970.
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

}  // namespace penstock::cli::reporting
