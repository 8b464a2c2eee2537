#pragma once

#include <string>
#include <vector>

#include "data/table/table_values.h"

/// Fills the missing values of a table.
namespace penstock::data {

/// Throws Error(bad_input) for a column all of whose values are missing; `names` are those of the columns.
void refuse_empty_columns(const TableValues& values, const std::vector<std::string>& names);

/// Replaces missing values as `missing` says, within each segment of rows by itself: `begins` are the first rows of the
/// segments. A segment without any value gets the mean of the column; a column without any is an error.
void fill_missing(TableValues& values, const std::vector<Index>& begins, Missing missing,
                  const std::vector<std::string>& names);

/// Returns how missing values were filled, such as "12 missing values replaced by the last one"; empty if there are
/// none.
std::string describe_filled(const TableValues& values, Missing missing);

}  // namespace penstock::data
