#pragma once

#include "formula/cell.h"
#include "penstock/cell.h"

namespace penstock::formula {

/// Calls the equations once with symbols. Throws Error(invalid_argument) unless they are a sound cell.
CellFormula trace_cell(const CellDefinition& definition, const CellEquations& equations);

}  // namespace penstock::formula
