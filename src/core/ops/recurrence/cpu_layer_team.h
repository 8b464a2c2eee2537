#pragma once

// How the jobs of a plan are dealt out to threads. Private to src/core/ops.

#include <deque>

#include "ops/recurrence/cpu_layer.h"
#include "ops/scan/work_split.h"

namespace penstock::ops {

/// Calls body(member) once on each of `threads` threads, whose members can wait for each other.
template <class Body>
void run_meeting_team(int threads, const Body& body) {
  if (threads == 1) return body(Member{});
  // OpenMP may grant fewer threads than were asked for; there is a barrier for each number of them.
  std::deque<SpinBarrier> barriers;
  for (int team = 2; team <= threads; ++team) barriers.emplace_back(team);
  run_team(threads, [&](int thread, int team) {
    body(Member{thread, team, team > 1 ? &barriers[static_cast<std::size_t>(team - 2)] : nullptr});
  });
}

/// Calls body(part, member) for the parts of a dense job: groups of slots on their own, the members of a group sharing
/// the unit blocks and, where they cut heads, a barrier.
template <class Real>
template <class Body>
void CpuLayer<Real>::run_dense(const cpu::PanelShape& shape, const Body& body) const {
  if (plan_.threads() == 1) return body(cpu::DensePart{0, batch_rows_.rows(), 0, shape.blocks, nullptr}, Member{});
  const int wanted_channels = static_cast<int>(std::min<Index>(plan_.channel_parts, shape.blocks));
  const bool rounds = kernels_.rounded_inputs != nullptr || kernels_.rounded_gradients != nullptr;  // for each other
  const Index together = shape.mixed < hidden_ / shape.heads ? 1 : shape.blocks_per_head;
  std::deque<SpinBarrier> barriers;
  for (int part = 0; part < plan_.row_parts; ++part) barriers.emplace_back(wanted_channels);
  run_meeting_team(plan_.row_parts * wanted_channels, [&](const Member& member) {
    const Share share = share_of(plan_.row_parts, wanted_channels, member.thread, member.team);
    cpu::DensePart part;
    part.slot_begin = share.first_slot(batch_rows_.plan(), batch_rows_.cells());
    part.slot_end = share.last_slot(batch_rows_.plan(), batch_rows_.cells());
    const bool cuts = rounds || !plan::keeps_heads_whole(shape.blocks / together, share.channel_parts);
    const Index unit = cuts ? 1 : together;
    part.block_begin = share.first_of(shape.blocks / unit) * unit;
    part.block_end = share.last_of(shape.blocks / unit) * unit;
    part.barrier = cuts && share.channel_parts > 1 ? &barriers[share.row_part] : nullptr;
    part.member = share.channel_part;
    part.members = share.channel_parts;
    body(part, member);
  });
}

}  // namespace penstock::ops
