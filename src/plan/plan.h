#pragma once

#include <string>

#include "penstock/types.h"
#include "plan/cell_table.h"
#include "plan/machine.h"

namespace penstock::plan {

/// One recurrent layer in one direction over one batch, as the planner sees it.
struct Problem {
  const CellTraits* cell = nullptr;
  Index rows = 1;    // B
  Index steps = 1;   // T
  Index hidden = 1;  // H
  Index heads = 1;
  int threads = 1;
  Algorithm algorithm = Algorithm::automatic;
  bool exact = false;
  Index channels_each = 16;  ///< Scan: channels that one thread should have at least: a cache line.
  Index input = 0;           // I; 0: there is no product of an input
  bool operator==(const Problem&) const = default;
};

/// How it will be executed. Plain data: two equal plans run alike.
struct Plan {
  Algorithm algorithm = Algorithm::sequential;
  int row_parts = 1;        ///< Groups of rows that run independently of each other.
  int channel_parts = 1;    ///< Dense: groups of units that meet at a barrier each step. Scan: independent channels.
  Index chunk = 0;          ///< Algorithm::scan: steps of a chunk; the last one may be shorter.
  double microseconds = 0;  ///< As estimated, the product of the input included; 0: not estimated.
  std::string why;          ///< What decided, and what spoke against the alternative.

  int threads() const { return row_parts * channel_parts; }
  /// One line for a person.
  std::string explain() const;
  bool operator==(const Plan&) const = default;
};

/// Throws Error(invalid_argument) when the problem asks for an algorithm that the cell or the mode does not allow.
Plan make_plan(const Problem& problem, const CpuModel& cpu);

/// Whether to pack the weights of a dense cell for a forward pass over so many steps and, of all rows together,
/// positions, after which they are not used again, saves more than it takes.
bool packing_pays(Index steps, Index positions, const CpuModel& cpu);

}  // namespace penstock::plan
