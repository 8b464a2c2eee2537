#pragma once

#include <string>
#include <string_view>

#include "penstock/types.h"
#include "plan/cell_table.h"
#include "plan/machine.h"

namespace penstock::plan {

/// Why a scan is refused in exact mode.
inline constexpr std::string_view kScanIsNotExact =
    "algorithm must be auto or sequential in exact mode, not scan: chunks round differently where a sequence is split";

/// A problem of the CPU planner: one recurrent layer in one direction over one batch.
struct Problem {
  const CellTraits* cell = nullptr;
  Index rows = 1;    // B
  Index steps = 1;   // T
  Index hidden = 1;  // H
  Index heads = 1;
  int threads = 1;
  Algorithm algorithm = Algorithm::automatic;
  bool exact = false;
  Index channels_each = 16;  ///< Scan: smallest number of channels per thread, one cache line.
  Index input = 0;           // I; 0: there is no input product
  bool int8 = false;         ///< Weights of int8
  bool operator==(const Problem&) const = default;
};

/// A plan for a Problem. It is plain data: equal plans run in the same way.
struct Plan {
  Algorithm algorithm = Algorithm::sequential;
  int row_parts = 1;        ///< Groups of rows that run independently of each other.
  int channel_parts = 1;    ///< Dense: groups of units with a barrier at each step. Scan: groups of channels.
  Index chunk = 0;          ///< Algorithm::scan: steps of a chunk; the last one may be shorter.
  double microseconds = 0;  ///< Estimated time including the input product; 0: not estimated.
  std::string why;          ///< The reason for this plan and against the alternative.

  int threads() const { return row_parts * channel_parts; }
  /// Returns one readable line.
  std::string explain() const;
  bool operator==(const Plan&) const = default;
};

/// Returns the plan for a problem. Throws Error(invalid_argument) if the cell or the mode does not allow the requested
/// algorithm.
Plan make_plan(const Problem& problem, const CpuModel& cpu);

/// Returns whether packing the weights of a dense cell for a single forward pass saves more time than it takes. `steps`
/// is T, `positions` the number of steps of all rows together.
bool packing_pays(Index steps, Index positions, const CpuModel& cpu);

/// Returns whether threads that share the units of a step each take whole heads (or vectors of whole heads), of which
/// there are `heads`: then no thread waits for another. Shares may differ by an eighth.
bool keeps_heads_whole(Index heads, Index threads);

}  // namespace penstock::plan
