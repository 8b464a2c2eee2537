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
  bool ambiguous = false;                ///< Texts that could be of either order of day and month.
  std::vector<double> seconds;           ///< Since the start of 1970, of each row.
  double step = 0.0;                     ///< The usual time between two rows, in seconds.
  double shortest = 0.0, longest = 0.0;  ///< The least and the most time between two rows.
  Index uneven = 0;                      ///< Rows that follow the one before by another time ...
  Index same = 0;                        ///< ... of which so many have its date.
  Index earlier = 0;                     ///< Rows that stand behind a later one: such dates are not read.
  std::vector<Feature> features;         ///< What the model reads of it.

  /// Whether dates rise, and most of them from row to row.
  bool rises() const { return earlier == 0 && step > 0.0; }

  /// "date: a row a month; the year as an input", for Dataset::reading(); or why it is not read.
  std::string describe(const std::string& name) const;
};

/// Finds the dates of a series and the cycles to read, or nothing; one that does not rise, and has no features, if no
/// other column holds dates. Held-out rows do not count for the choice. `taken` are columns that are numbers to the
/// model. Throws Error(invalid_argument) for a column that is not there and cycles that are shorter than two rows,
/// Error(bad_input) if the column that was asked for holds a field that is no date, or one goes back from row to row.
std::optional<Calendar> find_calendar(const CsvTable& table, const CalendarOptions& options,
                                      const std::vector<std::size_t>& taken, const SeriesTable& series);

}  // namespace penstock::data
