#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "data/series/series_table.h"
#include "data/table/open_table.h"
#include "penstock/data_description.h"

namespace penstock::data {

/// Returns warnings about columns with a value so far from all others that floats have too few digits left for these: a
/// sentence a column, for Dataset::reading(). `inputs` are the columns' positions in the header, `read` [rows, inputs]
/// the values that a model with that description sees.
std::vector<Message> lost_changes(const DataDescription& description, const OpenTable& table, const SeriesTable& series,
                                  const std::vector<std::size_t>& inputs, std::span<const float> read);

}  // namespace penstock::data
