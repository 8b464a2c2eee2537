#pragma once

#include <optional>
#include <string>
#include <vector>

#include "train/series_table.h"

/// The column of a table that says when each row was.
namespace penstock::data {

struct Calendar {
  std::size_t column = 0;  ///< Position in the header.
  DateForm form = DateForm::month_first;
  bool ambiguous = false;         ///< Texts that could be of either order of day and month.
  std::vector<double> seconds;    ///< Since the start of 1970, of each row.
  double step = 0.0;              ///< The usual time between two rows, in seconds.
  Index uneven = 0;               ///< Rows that follow the one before by another time.
  std::vector<Feature> features;  ///< What the model reads of it.

  /// "date: a row a month; the year as an input", for Dataset::reading().
  std::string describe(const std::string& name) const;
};

/// Finds the dates of a series and the cycles to read, or nothing. Held-out rows do not count for the choice. `taken`
/// are columns that are numbers to the model. Throws Error(invalid_argument) for a column that is not
/// there and cycles that are shorter than two rows, Error(bad_input) if the column that was asked for holds a field
/// that is no date.
std::optional<Calendar> find_calendar(const CsvTable& table, const CalendarOptions& options,
                                      const std::vector<std::size_t>& taken, const SeriesTable& series);

}  // namespace penstock::data
