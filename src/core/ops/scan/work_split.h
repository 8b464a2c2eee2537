#pragma once

#include "backend/cpu/kernels.h"

/// How rows and channels are dealt out to the threads of a team.
namespace penstock::ops {

/// The first slot of part `part` of `parts`, such that the parts have about equally many steps.
inline Index slot_boundary(const cpu::RowPlan& rows, Index cells, Index part, Index parts) {
  if (part >= parts) return rows.rows;
  const Index wanted = cells * part / parts;
  Index slot = 0;
  for (Index steps = 0; slot < rows.rows && steps < wanted; ++slot) steps += rows.length[slot];
  return slot;
}

/// One thread's share of the work of a team: a part of the rows, and of the channels (or blocks of them).
struct Share {
  int row_part, row_parts, channel_part, channel_parts;

  Index first_slot(const cpu::RowPlan& rows, Index cells) const {
    return slot_boundary(rows, cells, row_part, row_parts);
  }
  Index last_slot(const cpu::RowPlan& rows, Index cells) const {
    return slot_boundary(rows, cells, row_part + 1, row_parts);
  }
  Index first_of(Index count) const { return count * channel_part / channel_parts; }
  Index last_of(Index count) const { return count * (channel_part + 1) / channel_parts; }
};

/// OpenMP may grant fewer threads than the plan has; then nobody shares channels, and rows are all there is to deal
/// out.
inline Share share_of(int row_parts, int channel_parts, int thread, int team) {
  if (team != row_parts * channel_parts) channel_parts = 1;
  return {thread / channel_parts, team / channel_parts, thread % channel_parts, channel_parts};
}

}  // namespace penstock::ops
