#pragma once

// A scan over chunks of T side by side. Private to src/core/ops.

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "backend/cpu/kernels.h"
#include "base/threads.h"

namespace penstock::ops {

/// Memory for the effects of the chunks of a scan.
template <class Real>
struct ChunkSpace {
  cpu::ScanEffect<Real> effects;  // each [B, chunks, C]
  Index channels = 0;             // C

  cpu::ScanEffect<Real> at(Index chunk) const {
    const Index first = chunk * channels;
    return {effects.gain + first, effects.gain_rest + first, effects.offset + first};
  }
};

/// Cut of the rows of a scan into chunks, and the thread that runs each.
struct ScanChunks {
  const cpu::RowPlan& rows;
  Index steps, size;  // T; steps of a chunk
  int threads;
  bool backward = false;
};

/// Returns x in a type with the digits for a sum of two numbers.
template <class Real>
auto wide(Real x) {
  if constexpr (std::is_same_v<Real, float>) {
    return double{x};
  } else {
    return x;
  }
}

/// Leaves the state that enters a chunk in its offsets, and in `running` [C], where it came from, the state that leaves
/// it, as far as its summary says. Where that is no finite number the summary may be wrong (sums that overflow by
/// themselves alone, a gain of zero times infinity), and run(carry) computes it at once. Returns whether that was so.
template <class Real, class Run>
bool pass_chunk(const cpu::ScanEffect<Real>& effect, bool summarised, Index channels, Real* running, const Run& run) {
  bool finite = true;
  using std::isfinite;  // of numbers; what tests count with has one of its own
  for (Index c = 0; c < channels; ++c) {
    const Real entering = running[c];
    if (summarised) {
      const auto gain = wide(effect.gain[c]) + wide(effect.gain_rest[c]);
      running[c] = static_cast<Real>(gain * wide(entering) + wide(effect.offset[c]));
    }
    effect.offset[c] = entering;
    finite &= isfinite(running[c]);
  }
  if (finite || !summarised) return false;
  std::copy_n(effect.offset, channels, running);
  run(running);
  return true;
}

/// First prepare(part, thread) for every chunk, and for all but the one that runs last summary(part, effect), its
/// effect on any carry; then the carries from chunk to chunk; then run(part, carry) for all chunks, from their true
/// carries. `carry` [B, C] in slot order is the state entering each row, and then the one leaving it.
template <class Real, class Prepare, class Summary, class Run>
void scan_in_chunks(const ScanChunks& cut, Real* carry, const ChunkSpace<Real>& space, const Prepare& prepare,
                    const Summary& summary, const Run& run) {
  const cpu::RowPlan& rows = cut.rows;
  const Index chunk_size = cut.size;
  const Index channels = space.channels;
  const Index chunks = (cut.steps + chunk_size - 1) / chunk_size;
  const auto count_of = [&](Index slot) { return (rows.length[slot] + chunk_size - 1) / chunk_size; };
  const auto last_of = [&](Index slot) { return cut.backward ? 0 : count_of(slot) - 1; };
  const auto effect_of = [&](Index slot, Index chunk) { return space.at(slot * chunks + chunk); };
  const auto part_of = [&](Index slot, Index chunk) {
    const Index first = chunk * chunk_size;
    return cpu::ScanPart{slot, first, std::min(first + chunk_size, rows.length[slot]), 0, channels};
  };
  const auto for_each_chunk = [&](const auto& body) {
    const Index tasks = rows.rows * chunks;
    run_team(static_cast<int>(std::min<Index>(cut.threads, tasks)), [&](int thread, int team) {
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
    summary(part, effect_of(part.slot, chunk));
  });
  // From here on the offsets are the carry that enters each chunk, and the first gain says whether it has run.
  for (Index slot = 0; slot < rows.rows; ++slot) {
    const Index count = count_of(slot);
    for (Index i = 0; i < count; ++i) {
      const Index chunk = cut.backward ? count - 1 - i : i;
      const bool has_run = pass_chunk(effect_of(slot, chunk), chunk != last_of(slot), channels, carry + slot * channels,
                                      [&](Real* state) { run(part_of(slot, chunk), state); });
      effect_of(slot, chunk).gain[0] = has_run ? Real(1) : Real(0);
    }
  }
  for_each_chunk([&](const cpu::ScanPart& part, Index chunk, int) {
    const cpu::ScanEffect<Real> effect = effect_of(part.slot, chunk);
    if (effect.gain[0] == Real(0)) run(part, effect.offset);
  });
  // Take the state that left the last chunk, not the one computed from summaries: it equals the last output exactly.
  for (Index slot = 0; slot < rows.rows; ++slot) {
    if (count_of(slot) > 0) std::copy_n(effect_of(slot, last_of(slot)).offset, channels, carry + slot * channels);
  }
}

}  // namespace penstock::ops
