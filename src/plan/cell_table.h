#pragma once

#include <string_view>
#include <vector>

#include "penstock/types.h"

namespace penstock::plan {

/// A cell of the list as host code sees it: what its header declares, without its maths.
struct CellTraits {
  CellInfo info;
  std::string_view type;         ///< Its struct in src/cells/
  int index = 0;                 ///< Position in the list; how the kernels number their cells.
  int keep_gate = -1;            ///< Gate whose bias makes the memory longer, or -1
  int overwrite_gate = -1;       ///< Gate whose bias makes it shorter, or -1
  bool spread_memory = false;    ///< Each channel should begin with a time constant of its own
  int saved = 0;                 ///< N, values kept for the backward pass (dense cells)
  int phases = 1;                ///< 2: the last gates read an operand made by the first ones
  int first_gates = 0;           ///< Gates of the first phase; all of them where phases == 1
  bool split_gradients = false;  ///< The gradient of R h differs from that of W x

  int gates() const { return static_cast<int>(info.gates); }
  int states() const { return static_cast<int>(info.states); }
};

const std::vector<CellTraits>& cell_table();

/// Throws Error(invalid_argument) that lists the names there are.
const CellTraits& cell_traits(std::string_view name);

}  // namespace penstock::plan
