#pragma once

#include <string>
#include <string_view>

#include "formula/cell.h"
#include "plan/cell_table.h"

namespace penstock::plan {

/// The cell that was defined under this name, or null. Cells are never forgotten.
const CellTraits* find_defined_cell(std::string_view name);

/// Makes a checked cell known. The same cell again is the one from before. Throws Error(code) for a name that another
/// cell has; `source` begins the message.
const CellTraits& add_defined_cell(formula::CellFormula cell, std::string_view source, ErrorCode code);

/// The JSON text of a defined cell.
const std::string& defined_cell_json(const CellTraits& traits);

/// Names of all defined cells, each after ", ".
std::string defined_cell_names();

}  // namespace penstock::plan
