#include "ops/recurrence/wavefront_team.h"

#include <algorithm>
#include <thread>

#include "base/threads.h"

namespace penstock::ops {

WavefrontTeam::WavefrontTeam(std::size_t layers, int threads)
    : layers_(layers), threads_(std::min(threads, static_cast<int>(layers))) {}

void WavefrontTeam::run(Index chunks, const RunChunk& run_chunk) {
  chunks_ = chunks;
  for (Layer& layer : layers_) {
    layer.done.store(0, std::memory_order_relaxed);
    layer.busy.store(false, std::memory_order_relaxed);
  }
  failed_.store(false, std::memory_order_relaxed);
  run_team(threads_, [&](int thread, int team) { work(thread, team, run_chunk); });
}

void WavefrontTeam::work(int thread, int team, const RunChunk& run_chunk) {
  try {
    for (int idle = 0; !failed_.load(std::memory_order_relaxed);) {
      if (all_done()) return;
      idle = advance(thread, team, run_chunk) ? 0 : idle + 1;
      constexpr int patience = 256;
      if (idle > patience) std::this_thread::yield();
    }
  } catch (...) {
    failed_.store(true, std::memory_order_relaxed);
    throw;
  }
}

/// Runs one chunk that is due, if there is one: rather of a layer whose weights this thread has in its cache, and
/// rather of a layer far up, so that the waves stay steep.
bool WavefrontTeam::advance(int thread, int team, const RunChunk& run_chunk) {
  for (const bool own : {true, false}) {
    for (std::size_t layer = layers_.size(); layer-- > 0;) {
      if ((static_cast<int>(layer) % team == thread) == own && advance_layer(layer, run_chunk)) return true;
    }
  }
  return false;
}

bool WavefrontTeam::is_due(std::size_t layer) const {
  const Index next = layers_[layer].done.load(std::memory_order_acquire);
  return next < chunks_ && (layer == 0 || layers_[layer - 1].done.load(std::memory_order_acquire) > next);
}

bool WavefrontTeam::advance_layer(std::size_t number, const RunChunk& run_chunk) {
  Layer& layer = layers_[number];
  if (!is_due(number) || layer.busy.exchange(true, std::memory_order_acquire)) return false;
  const bool due = is_due(number);  // still, now that nobody else is at it
  if (due) {
    const Index next = layer.done.load(std::memory_order_relaxed);
    run_chunk(number, next);
    layer.done.store(next + 1, std::memory_order_release);
  }
  layer.busy.store(false, std::memory_order_release);
  return due;
}

}  // namespace penstock::ops
