#pragma once

#include <string_view>
#include <vector>

#include "penstock/types.h"

namespace penstock::custom {
struct DerivedCell;
}

namespace penstock::plan {

/// CellTraits::index of cells that are not in the list.
constexpr int kCustomCell = -1;

/// A cell's struct for the compiler of kernels.
struct CellText {
  std::string_view type;             ///< Its name; empty: the cell has no struct
  std::string_view definition = {};  ///< Definition by a program; empty: the struct is in src/core/cells/

  friend bool operator==(const CellText&, const CellText&) = default;
};

/// The declarations of a cell's header for host code, without its equations.
struct CellTraits {
  CellInfo info;
  CellText text;
  int index = 0;                 ///< Position in the list, the number of the cell in kernels, or kCustomCell
  int keep_gate = -1;            ///< Gate with a bias that makes the memory longer, or -1
  int overwrite_gate = -1;       ///< Gate with a bias that makes the memory shorter, or -1
  bool spread_memory = false;    ///< Each channel should start with a different time constant
  int saved = 0;                 ///< N, values saved for the backward pass (dense cells)
  int phases = 1;                ///< 2: the last gates read an operand that the first ones compute
  int first_gates = 0;           ///< Gates of the first phase; all gates if phases == 1
  bool split_gradients = false;  ///< The gradient of R h differs from that of W x
  bool bounded = false;          ///< |h| <= 1 from a zero state on; false if unknown
  int alive = 0;                 ///< Values of a unit that a pass needs at the same time (custom cells)
  int learnt = 0;                ///< K, learnt vectors [H] behind the G gates of bias_ih (custom cells)
  bool averages = false;         ///< A unit reads means over its head (custom cells)
  /// Exchanges of such means in a step of a kernel: how many each of them carries for a row and head.
  std::vector<int> forward_means = {}, backward_means = {};
  const custom::DerivedCell* custom = nullptr;  ///< The equations of a custom cell, which has no header

  /// Returns how many of these values a kernel has no registers for if it has them for `covered`.
  int alive_beyond(int covered) const { return alive > covered ? alive - covered : 0; }
  int gates() const { return static_cast<int>(info.gates); }
  int states() const { return static_cast<int>(info.states); }
  const std::vector<int>& means(bool backward) const { return backward ? backward_means : forward_means; }
  /// Vectors [H] of bias_ih.
  Index bias_vectors() const { return info.gates + learnt; }

  bool operator==(const CellTraits&) const = default;
};

/// The cells of src/core/cells/.
const std::vector<CellTraits>& cell_table();

/// Returns the cell of the list, or the custom cell, with this name. Throws Error(invalid_argument), which lists the
/// names, if there is none.
const CellTraits& cell_traits(std::string_view name);

}  // namespace penstock::plan
