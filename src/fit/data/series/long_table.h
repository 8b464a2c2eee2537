#pragma once

#include <vector>

#include "data/table/open_table.h"

/// Long tables: many series below each other, told apart by a column, each with the same dates.
namespace penstock::data {

/// Throws Error(bad_input) that names the column, or the two, whose values tell series apart where the dates of a
/// column come again and again: each of these series has every date once. `seconds` are the dates of all rows,
/// not a number where there is none.
void refuse_long_table(const OpenTable& table, std::size_t date_column, const std::vector<double>& seconds);

}  // namespace penstock::data
