#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/series/calendar.h"
#include "data/series/series_rows.h"
#include "data/table/open_table.h"
#include "data/table/table_values.h"
#include "penstock/data/series.h"
#include "penstock/description/row_dates.h"
#include "penstock/description/table.h"

namespace penstock::data {

/// The used columns of a table of series, raw, segment by segment: the rows of one group that are apart in the files
/// follow each other here.
struct SeriesTable {
  std::vector<training::Segment> segments;
  std::vector<std::string> groups;    // names, in the order of their first rows; empty: there are none
  TableValues values;                 // columns by position in the header
  std::optional<Calendar> calendar;   // if there is one and it matters; seconds of all rows
  Missing missing = Missing::refuse;  // what became of missing values
  std::vector<Message> findings;      // about groups, for Dataset::reading()

  Index rows() const { return values.rows(); }
};

/// Positions in the header of what a series model reads and forecasts.
struct SeriesColumns {
  std::vector<std::size_t> inputs, targets;
  std::vector<std::size_t> known;  ///< Those of the inputs that are known in advance.
  std::vector<std::size_t> parts;  ///< Inputs that are no targets, as they are parts of dates.
};

/// Reads these columns, leaves out of the table rows whose date cannot be read if they are to be dropped, puts in rows
/// that are missing from a regular calendar if they are to be filled in, and splits every segment by time. Those that
/// are too short for the horizon are left out, which `findings` says. Throws Error(bad_input) if nothing is left, or
/// nothing can be held out that should be; Error(invalid_argument) for a group column that is not there or is to be
/// read or forecast itself; and as find_calendar() does. `dates` say how far rows are apart for a model that is trained
/// further; otherwise null.
SeriesTable read_series(OpenTable& table, const SeriesColumns& columns, const SeriesOptions& options,
                        const RowDates* dates = nullptr);

}  // namespace penstock::data
