#pragma once

#include "data/series/series_table.h"
#include "data/table/open_table.h"
#include "penstock/data/series.h"
#include "penstock/data_description.h"

namespace penstock::data {

/// Finds what a series model reads and forecasts, and gives the table columns for categories, which stand behind all
/// other inputs. `choice` becomes what the table offered. `origin`: a model's description that decides about
/// categories; null: none. Throws Error(invalid_argument | bad_input) for columns that are not there, or cannot be what
/// is asked.
SeriesColumns find_columns(OpenTable& table, const SeriesOptions& options, OpenTable::Choice& choice,
                           const DataDescription* origin);

/// Categories that training does not show are not read: a model would not know what to make of them.
void drop_unseen_categories(const OpenTable& table, const SeriesTable& series, SeriesColumns& columns);

}  // namespace penstock::data
