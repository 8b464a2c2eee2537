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

/// What one thread of a team does: a part of the rows, and of the channels (or blocks of them).
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

/// Calls body(part, member) for the parts of a dense job: groups of slots on their own, the members of a group sharing
/// the unit blocks and a barrier.
template <class Real>
template <class Body>
void RecurrentOp<Real>::run_dense(const cpu::PanelShape& shape, const Body& body) const {
  if (plan_.threads() == 1) return body(cpu::DensePart{0, geometry_.rows(), 0, shape.blocks, nullptr}, Member{});
  const int wanted_channels = static_cast<int>(std::min<Index>(plan_.channel_parts, shape.blocks));
  std::deque<SpinBarrier> barriers;
  for (int part = 0; part < plan_.row_parts; ++part) barriers.emplace_back(wanted_channels);
  run_meeting_team(plan_.row_parts * wanted_channels, [&](const Member& member) {
    const Share share = share_of(plan_.row_parts, wanted_channels, member.thread, member.team);
    cpu::DensePart part;
    part.slot_begin = share.first_slot(geometry_.plan(), geometry_.cells());
    part.slot_end = share.last_slot(geometry_.plan(), geometry_.cells());
    part.block_begin = share.first_of(shape.blocks);
    part.block_end = share.last_of(shape.blocks);
    part.barrier = share.channel_parts > 1 ? &barriers[share.row_part] : nullptr;
    part.member = share.channel_part;
    part.members = share.channel_parts;
    body(part, member);
  });
}

}  // namespace penstock::ops
