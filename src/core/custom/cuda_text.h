#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "custom/cell.h"

namespace penstock::custom {

/// Returns the definition of a struct called `name` with a derived cell's equations, in the form of the cells in
/// src/core/cells/ (cells/contract.h) over a value type V. Besides the functions of cells/gate_functions.h it calls
/// those of backend/cuda/kernels/custom_functions.cuh. All identifiers are the writer's own: nothing that a user named
/// is in the text. The functions of a cell with K learnt vectors also read the K values of its unit, behind the states
/// or gates, and write their gradients.
///
/// The functions of a cell with means over the units of a head take a `head` first, whose threads compute means
/// together: `head.average<E, M>(V (&x)[N], V (&square)[K])` is exchange E of the pass. It replaces the values x of
/// each thread's units by their means, and writes for all but the first M the mean of squares of x minus its mean. A
/// third argument `true` says that x are R h of all gates, which some threads also have of other units.
/// forward_averages and backward_averages are the numbers of means in each exchange (averages_of()). Such a text also
/// defines PENSTOCK_MEANS: what kernels compile for other cells does not depend on it.
std::string cuda_text(const DerivedCell& cell, std::string_view name);

/// The exchanges of means of a cell in kernels: how many values each one carries for a row and head.
struct Averages {
  std::vector<int> forward, backward;
  int alive = 0;  ///< Values of a unit that a pass needs at the same time.
};
Averages averages_of(const DerivedCell& cell);

}  // namespace penstock::custom
