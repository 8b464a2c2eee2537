#pragma once

#include <cstddef>
#include <vector>

#include "data/table/open_table.h"

namespace penstock::data {

/// Returns those of `columns` that say a part of a date: they are called "month", "day", "hour", ... and hold nothing
/// but whole numbers as such parts have.
std::vector<std::size_t> calendar_parts(const OpenTable& table, const std::vector<std::size_t>& columns);

}  // namespace penstock::data
