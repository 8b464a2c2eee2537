#pragma once

#include "custom/cell.h"
#include "penstock/cell.h"

namespace penstock::custom {

/// Calls the equations once with symbols. Throws Error(invalid_argument) unless they are a sound cell.
CustomCell trace_cell(const CellDefinition& definition, const CellEquations& equations);

}  // namespace penstock::custom
