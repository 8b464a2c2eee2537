#pragma once

#include <string_view>
#include <vector>

#include "penstock/types.h"

namespace penstock::plan {

/// The declarations of a cell's header for host code, without its equations.
struct CellTraits {
  CellInfo info;
  std::string_view type;         ///< Its struct in src/cells/
  int index = 0;                 ///< Position in the list, the number of the cell in kernels
  int keep_gate = -1;            ///< Gate with a bias that makes the memory longer, or -1
  int overwrite_gate = -1;       ///< Gate with a bias that makes the memory shorter, or -1
  bool spread_memory = false;    ///< Each channel should start with a different time constant
  int saved = 0;                 ///< N, values saved for the backward pass (dense cells)
  int phases = 1;                ///< 2: the last gates read an operand that the first ones compute
  int first_gates = 0;           ///< Gates of the first phase; all gates if phases == 1
  bool split_gradients = false;  ///< The gradient of R h differs from that of W x

  int gates() const { return static_cast<int>(info.gates); }
  int states() const { return static_cast<int>(info.states); }
};

const std::vector<CellTraits>& cell_table();

/// Returns the cell with this name. Throws Error(invalid_argument), which lists the names, if there is none.
const CellTraits& cell_traits(std::string_view name);

}  // namespace penstock::plan
