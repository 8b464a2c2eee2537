#pragma once

// A scan over chunks of T side by side. Private to src/ops.

#include <algorithm>
#include <cmath>

#include "backend/cpu/kernels.h"
#include "base/threads.h"

namespace penstock::ops {

/// Where a chunked scan keeps its carries.
template <class Real>
struct ChunkSpace {
  Real* gains = nullptr;    // [B, chunks, C]
  Real* offsets = nullptr;  // [B, chunks, C]
};

/// What becomes of a chunk whose summary overflows though the state that enters it is finite.
enum class Overflow {
  ignore,      ///< The state is infinite or NaN from there on.
  walk_early,  ///< The chunk is walked at once, from the state that enters it, which says what leaves it.
};

/// Is some state that entered a chunk finite, and what left it not?
template <class Real>
bool overflows(const Real* entering, const Real* leaving, Index channels) {
  bool found = false;
  using std::isfinite;  // of numbers; what tests count with has one of its own
  for (Index c = 0; c < channels; ++c) found |= isfinite(entering[c]) && !isfinite(leaving[c]);
  return found;
}

/// First prepare(part, thread) for every chunk, and for all but the one that is walked last summary(part, gain,
/// offset), its effect on any carry; then the carries from chunk to chunk; then run(part, carry) for all chunks, from
/// their true carries. `carry` [B, C] in slot order is the state entering each row, and then the one leaving it.
template <class Real, class Prepare, class Summary, class Run>
void scan_in_chunks(const cpu::RowPlan& rows, Index steps, Index channels, Index chunk_size, int threads, bool backward,
                    Real* carry, const ChunkSpace<Real>& space, const Prepare& prepare, const Summary& summary,
                    const Run& run, Overflow overflow = Overflow::ignore) {
  const Index chunks = (steps + chunk_size - 1) / chunk_size;
  const auto count_of = [&](Index slot) { return (rows.length[slot] + chunk_size - 1) / chunk_size; };
  const auto last_of = [&](Index slot) { return backward ? 0 : count_of(slot) - 1; };
  const auto at = [&](Real* buffer, Index slot, Index chunk) { return buffer + (slot * chunks + chunk) * channels; };
  const auto part_of = [&](Index slot, Index chunk) {
    const Index first = chunk * chunk_size;
    return cpu::ScanPart{slot, first, std::min(first + chunk_size, rows.length[slot]), 0, channels};
  };
  const auto for_each_chunk = [&](const auto& body) {
    const Index tasks = rows.rows * chunks;
    run_team(static_cast<int>(std::min<Index>(threads, tasks)), [&](int thread, int team) {
      for (Index task = tasks * thread / team; task < tasks * (thread + 1) / team; ++task) {
        const Index slot = task / chunks, chunk = task % chunks;
        const cpu::ScanPart part = part_of(slot, chunk);
        if (part.begin < part.end) body(part, chunk, thread);
      }
    });
  };
  for_each_chunk([&](const cpu::ScanPart& part, Index chunk, int thread) {
    prepare(part, thread);
    if (chunk == last_of(part.slot)) return;
    summary(part, at(space.gains, part.slot, chunk), at(space.offsets, part.slot, chunk));
  });
  // From here on `offsets` holds the carry that enters each chunk, and the first gain whether it has been walked.
  const auto walked = [&](Index slot, Index chunk) { return at(space.gains, slot, chunk); };
  for (Index slot = 0; slot < rows.rows; ++slot) {
    const Index count = count_of(slot);
    Real* running = carry + slot * channels;
    for (Index i = 0; i < count; ++i) {
      const Index chunk = backward ? count - 1 - i : i;
      const Real* gain = at(space.gains, slot, chunk);
      Real* offset = at(space.offsets, slot, chunk);
      const bool summarised = chunk != last_of(slot);
      for (Index c = 0; c < channels; ++c) {
        const Real entering = running[c];
        if (summarised) running[c] = gain[c] * entering + offset[c];
        offset[c] = entering;
      }
      const bool early = summarised && overflow == Overflow::walk_early && overflows(offset, running, channels);
      if (early) {
        std::copy_n(offset, channels, running);
        run(part_of(slot, chunk), running);
      }
      *walked(slot, chunk) = early ? Real(1) : Real(0);
    }
  }
  for_each_chunk([&](const cpu::ScanPart& part, Index chunk, int) {
    if (*walked(part.slot, chunk) == Real(0)) run(part, at(space.offsets, part.slot, chunk));
  });
  // What left the last chunk, rather than what the summaries foretold: the state is then the last output itself.
  for (Index slot = 0; slot < rows.rows; ++slot) {
    if (count_of(slot) > 0) std::copy_n(at(space.offsets, slot, last_of(slot)), channels, carry + slot * channels);
  }
}

}  // namespace penstock::ops
