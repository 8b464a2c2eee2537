#pragma once

#include <string>
#include <string_view>

#include "custom/cell.h"
#include "plan/cell_table.h"

namespace penstock::plan {

/// The cell that was defined under this name, or null. Cells are never forgotten.
const CellTraits* find_custom_cell(std::string_view name);

/// Makes a checked cell known. The same cell again is the one from before. Throws Error(code) for a name that another
/// cell has; `source` begins the message.
const CellTraits& add_custom_cell(custom::CustomCell cell, std::string_view source, ErrorCode code);

/// The JSON text of a custom cell.
const std::string& custom_cell_json(const CellTraits& traits);

/// Returns the names of all custom cells.
std::vector<std::string> custom_cell_names();

}  // namespace penstock::plan
