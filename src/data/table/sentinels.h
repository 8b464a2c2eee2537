#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/table/table_values.h"

/// Numbers that stand for a missing value, such as -999 among values near 5: taken for values, they spoil the scale of
/// their column, and all forecasts of it.
namespace penstock::data {

/// Returns warnings about such numbers in a column, for Dataset::reading(): for each number how often and where it
/// occurs, and what to do. `values` and `filled` are those of the column, as TableValues has them, and `where` says
/// where its rows come from.
std::vector<std::string> sentinels(const std::string& name, const std::vector<double>& values,
                                   const std::vector<std::uint8_t>& filled, const TableValues& where);

}  // namespace penstock::data
