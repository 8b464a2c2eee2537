#pragma once

// How the jobs of a plan are dealt out to threads. Private to src/ops.

#include <deque>

#include "ops/recurrent.h"

namespace penstock::ops {

/// The first slot of part `part` of `parts`, such that the parts have about equally many steps.
inline Index slot_boundary(const cpu::RowPlan& rows, Index cells, Index part, Index parts) {
  if (part >= parts) return rows.rows;
  const Index wanted = cells * part / parts;
  Index slot = 0;
  for (Index steps = 0; slot < rows.rows && steps < wanted; ++slot) steps += rows.length[slot];
  return slot;
}

/// Runs a dense job: groups of slots on their own, the members of a group sharing the unit blocks and a barrier.
template <class Real>
template <class Job, class Run>
void RecurrentOp<Real>::run_dense(const Job& job, const cpu::PanelShape& shape, Run run) const {
  if (plan_.threads() == 1) return run(job, {0, geometry_.rows(), 0, shape.blocks, nullptr});
  const int wanted_channels = static_cast<int>(std::min<Index>(plan_.channel_parts, shape.blocks));
  const int wanted_team = plan_.row_parts * wanted_channels;
  std::deque<SpinBarrier> barriers;
  for (int part = 0; part < plan_.row_parts; ++part) barriers.emplace_back(wanted_channels);
  run_team(wanted_team, [&](int thread, int team) {
    // OpenMP may grant fewer threads than the plan has; then nobody shares units, and rows are all there is to deal
    // out.
    const int channel_parts = team == wanted_team ? wanted_channels : 1;
    const int row_parts = team / channel_parts;
    const int row_part = thread / channel_parts;
    const int channel_part = thread % channel_parts;
    cpu::DensePart part;
    part.slot_begin = slot_boundary(geometry_.plan(), geometry_.cells(), row_part, row_parts);
    part.slot_end = slot_boundary(geometry_.plan(), geometry_.cells(), row_part + 1, row_parts);
    part.block_begin = shape.blocks * channel_part / channel_parts;
    part.block_end = shape.blocks * (channel_part + 1) / channel_parts;
    part.barrier = channel_parts > 1 ? &barriers[row_part] : nullptr;
    part.member = channel_part;
    part.members = channel_parts;
    run(job, part);
  });
}

/// Calls body(member) once on each of `threads` threads, whose members can wait for each other.
template <class Body>
void run_meeting_team(int threads, const Body& body) {
  // OpenMP may grant fewer threads than were asked for; there is a barrier for each number of them.
  std::deque<SpinBarrier> barriers;
  for (int team = 2; team <= threads; ++team) barriers.emplace_back(team);
  run_team(threads, [&](int thread, int team) {
    body(Member{thread, team, team > 1 ? &barriers[static_cast<std::size_t>(team - 2)] : nullptr});
  });
}

}  // namespace penstock::ops
