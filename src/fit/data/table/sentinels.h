#pragma once

#include <string>
#include <vector>

#include "data/table/table_values.h"

/// Numbers that stand for a missing value, such as -999 among values near 5: taken for values, they spoil the scale of
/// their column, and all forecasts of it.
namespace penstock::data {

/// Returns warnings about such numbers in all columns, for Dataset::reading(): for each number how often and where it
/// occurs, and what to do. `names` are those of the columns.
std::vector<Message> sentinels(const TableValues& values, const std::vector<std::string>& names);

}  // namespace penstock::data
