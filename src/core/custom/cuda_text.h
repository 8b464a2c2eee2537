#pragma once

#include <string>
#include <string_view>

#include "custom/cell.h"

namespace penstock::custom {

/// Returns the definition of a struct called `name` with a derived cell's equations, in the form of the cells in
/// src/core/cells/ (cells/contract.h) over a value type V. Besides the functions of cells/gate_functions.h it calls
/// those of backend/cuda/kernels/custom_functions.cuh. All identifiers are the writer's own: nothing that a user named
/// is in the text. The functions of a cell with K learnt vectors also read the K values of its unit, behind the states
/// or gates, and write their gradients. Kernels that apply cells with means over units also define Mean().
std::string cuda_text(const DerivedCell& cell, std::string_view name);

}  // namespace penstock::custom
