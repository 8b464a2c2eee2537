#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "penstock/description/column.h"

/// Dates of the rows of a series.
namespace penstock {

/// Treatment of rows of a series whose date cannot be read: 2023-02-30, a line "Total", an empty field.
enum class Undated {
  refuse,  ///< Error that names the place.
  drop,    ///< Leaves these rows out.
};

std::string_view to_string(Undated undated);
/// Returns the treatment of that name. Throws Error(invalid_argument) for anything except "refuse" and "drop".
Undated parse_undated(std::string_view text);

/// Treatment of series whose rows are not evenly spaced in time.
enum class Irregular {
  automatic,  ///< fill if few rows of a regular calendar are missing; elapsed if the dates follow no calendar.
  ignore,     ///< Ignores the distances in time.
  elapsed,    ///< Adds the time since the previous row as an input, Feature::elapsed.
  fill,       ///< Inserts the rows that a regular calendar has and the table lacks, without values. Missing says how
              ///< these are filled; with Missing::refuse they are treated as with Missing::mask.
  refuse,     ///< Error that names the place.
};

std::string_view to_string(Irregular irregular);
/// Returns the treatment of that name. Throws Error(invalid_argument) that lists the names.
Irregular parse_irregular(std::string_view text);

/// Dates of the rows of a series: their column, their usual distance, and the treatment of irregular ones.
struct RowDates {
  Irregular irregular = Irregular::ignore;  ///< Never automatic.
  std::string column = {};  ///< Column of the dates. With Irregular::ignore it is optional and only labels rows.
  DateForm form = DateForm::month_first;
  double step = 0.0;          ///< Usual time between two rows, in seconds.
  bool working_days = false;  ///< There are no rows on Saturdays and Sundays.

  /// Returns the seconds from one date to another; both are seconds since the start of 1970. Dates without a time zone
  /// skip or repeat an hour in nights in which clocks are changed; there, an hour more or less than `step` counts as
  /// `step`.
  double seconds_between(double before, double after) const;
  /// Returns the number of rows of a regular calendar that are missing between two dates.
  double missing_between(double before, double after) const;
  /// Returns the dates of the missing rows between two dates.
  std::vector<double> between(double before, double after) const;
  /// Returns whether `after` is a regular date for the row that follows the row at `before`.
  bool is_regular(double before, double after) const;
};

}  // namespace penstock
