#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/series/cycle_test.h"
#include "data/table/open_table.h"
#include "data/table/table_values.h"
#include "penstock/data/series.h"
#include "penstock/description/row_dates.h"

/// The column of a table that says when each row was.
namespace penstock::data {

struct Calendar {
  std::size_t column = 0;  ///< Position in the header.
  RowDates dates;
  bool zoned = false;                    ///< Dates name their time zones ...
  bool zones_differ = false;             ///< ... and not all the same.
  bool ambiguous = false;                ///< Texts that could be of either order of day and month.
  std::vector<double> seconds;           ///< Since the start of 1970, of each row; NaN where there is no date.
  std::vector<Index> undated;            ///< Rows whose date cannot be read.
  std::string first_undated;             ///< The field of the first, and its line, as a message says it.
  std::string time_column;               ///< Says when in a day a row was, as the dates do not; empty: none does.
  std::string passed_over;               ///< Why a column in front is not the calendar; empty: there was none.
  double shortest = 0.0, longest = 0.0;  ///< The least and the most time between two rows.
  Index uneven = 0;                      ///< Rows that follow the one before by another time ...
  Index same = 0;                        ///< ... of which so many have its date.
  Index earlier = 0;                     ///< Rows that stand behind a later one: such dates are not read.
  double missing = 0.0;                  ///< Rows of a regular calendar that are not there.
  Index off = 0;                         ///< Rows whose dates are none of a regular calendar.
  Index first_uneven = -1;               ///< The first of them ...
  Index first_earlier = -1;              ///< ... and of those,
  Index earlier_line = 0;                ///< and where it stands.
  std::vector<Feature> features;         ///< Cycles that the model reads.
  std::vector<Cycle> not_followed;       ///< Cycles that it would read, had the training rows followed them.

  /// Returns whether dates never fall, and mostly rise from row to row.
  bool rises() const { return earlier == 0 && dates.step > 0.0; }
  /// Returns whether all rows have a date, and these rise.
  bool is_whole() const { return rises() && undated.empty(); }
  /// The time from the row before in units of the usual one, of rows of one series.
  double elapsed(Index row) const { return dates.seconds_between(seconds[row - 1], seconds[row]) / dates.step; }

  /// "date: a row a month; the day of the year as input", for Dataset::reading(); or why it is not read.
  Message describe(const std::string& name) const;
};

/// Rows that follow each other in time.
struct RowRun {
  std::vector<Index> rows;
  Index group = 0;
};

/// Finds the dates of rows, or nothing; one that does not rise if no other column holds dates, unless it is asked for.
/// `taken` are columns that are numbers to the model, `values` say where rows stand. A column is one of dates if most
/// of its fields are; one whose fields all are goes first. Throws Error(invalid_argument) for a column that is not
/// there, or if none rises where one is needed; Error(bad_input) if a field of the calendar is no date and
/// Undated::refuse says so, or dates go back from row to row, or they are to be regular and are not. With Undated::drop
/// such a calendar is returned as it is found, to be looked for again once the rows without a date are left out.
std::optional<Calendar> find_calendar(const OpenTable& table, const SeriesOptions& options,
                                      const std::vector<std::size_t>& taken, const std::vector<RowRun>& runs,
                                      const TableValues& values);

/// Chooses which cycles of dates that rise are read: those that options ask for, or those that the training rows hold
/// twice and follow. `rows` have the dates of the calendar. Throws Error(invalid_argument) for cycles that are shorter
/// than two rows.
void choose_cycles(Calendar& calendar, const CalendarOptions& options, const training::DatedRows& rows);

}  // namespace penstock::data
