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
    run(job, part);
  });
}

/// Runs a scan job. Sequential plans deal out rows and groups of channels. Chunked plans first find each chunk's effect
/// on any carry, then walk the carries from chunk to chunk, then run all chunks from their true carries; `gains` and
/// `offsets` are [B, chunks, H].
template <class Real>
template <class Job, class Run, class Summary>
void RecurrentOp<Real>::run_scan(const Job& job, bool backward, Real* carry, Real* gains, Real* offsets, Run run,
                                 Summary summary) const {
  const cpu::RowPlan& rows = geometry_.plan();
  const auto whole = [&](Index begin, Index end, Index channel_begin, Index channel_end) {
    for (Index slot = begin; slot < end; ++slot) {
      run(job, {slot, 0, rows.length[slot], channel_begin, channel_end}, carry + slot * hidden_);
    }
  };
  if (plan_.algorithm == Algorithm::sequential) {
    run_team(plan_.threads(), [&](int thread, int team) {
      const int channel_parts = team == plan_.threads() ? plan_.channel_parts : 1;
      const int row_parts = team / channel_parts;
      const int row_part = thread / channel_parts;
      const Index channel_part = thread % channel_parts;
      // Whole cache lines of channels.
      const Index lines = (hidden_ + 15) / 16;
      const Index begin = lines * channel_part / channel_parts * 16;
      const Index end = std::min(hidden_, lines * (channel_part + 1) / channel_parts * 16);
      whole(slot_boundary(rows, geometry_.cells(), row_part, row_parts),
            slot_boundary(rows, geometry_.cells(), row_part + 1, row_parts), begin, end);
    });
    return;
  }

  const Index chunks = chunk_count();
  const auto at = [&](Real* buffer, Index slot, Index chunk) { return buffer + (slot * chunks + chunk) * hidden_; };
  const auto part_of = [&](Index task) {
    const Index slot = task / chunks, chunk = task % chunks;
    return cpu::ScanPart{slot, chunk * plan_.chunk, std::min((chunk + 1) * plan_.chunk, rows.length[slot]), 0, hidden_};
  };
  const auto count_of = [&](Index slot) { return (rows.length[slot] + plan_.chunk - 1) / plan_.chunk; };
  // The chunk that is walked last: nothing hangs on its summary.
  const auto last_of = [&](Index slot) { return backward ? 0 : count_of(slot) - 1; };
  const int threads = plan_.threads();
  parallel_for(threads, rows.rows * chunks, 1, [&](Index begin, Index end) {
    for (Index task = begin; task < end; ++task) {
      const cpu::ScanPart part = part_of(task);
      const Index chunk = task % chunks;
      if (part.begin >= part.end || chunk == last_of(part.slot)) continue;
      summary(job, part, at(gains, part.slot, chunk), at(offsets, part.slot, chunk));
    }
  });
  // From here on `offsets` holds the carry that enters each chunk.
  for (Index slot = 0; slot < rows.rows; ++slot) {
    const Index count = count_of(slot);
    Real* running = carry + slot * hidden_;
    for (Index i = 0; i < count; ++i) {
      const Index chunk = backward ? count - 1 - i : i;
      const Real* gain = at(gains, slot, chunk);
      Real* offset = at(offsets, slot, chunk);
      const bool summarised = chunk != last_of(slot);
      for (Index c = 0; c < hidden_; ++c) {
        const Real entering = running[c];
        if (summarised) running[c] = gain[c] * entering + offset[c];
        offset[c] = entering;
      }
    }
  }
  parallel_for(threads, rows.rows * chunks, 1, [&](Index begin, Index end) {
    for (Index task = begin; task < end; ++task) {
      const cpu::ScanPart part = part_of(task);
      if (part.begin < part.end) run(job, part, at(offsets, part.slot, task % chunks));
    }
  });
  // What left the last chunk, rather than what the summaries foretold: the state is then the last output itself.
  for (Index slot = 0; slot < rows.rows; ++slot) {
    if (count_of(slot) > 0) std::copy_n(at(offsets, slot, last_of(slot)), hidden_, carry + slot * hidden_);
  }
}

}  // namespace penstock::ops
