#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <vector>

#include "penstock/types.h"

namespace penstock::ops {

/// Chunks of layers that read each other: a chunk is run by one thread, in any order in which it comes after the chunk
/// before it and after the same chunk of the layer before it.
class WavefrontTeam {
 public:
  /// Layers are numbered in the order in which they read each other. At most one thread for each takes part.
  WavefrontTeam(std::size_t layers, int threads);

  /// Calls run_chunk(layer, chunk) for every layer and chunk 0..chunks-1. Allocates nothing; an exception of a call
  /// ends the run and reaches the caller.
  void run(Index chunks, const std::function<void(std::size_t layer, Index chunk)>& run_chunk);

 private:
  struct Layer {
    alignas(64) std::atomic<Index> done{0};  // chunks
    alignas(64) std::atomic<bool> busy{false};
  };
  using RunChunk = std::function<void(std::size_t, Index)>;

  void work(int thread, int team, const RunChunk& run_chunk);
  bool advance(int thread, int team, const RunChunk& run_chunk);
  bool advance_layer(std::size_t layer, const RunChunk& run_chunk);
  bool is_due(std::size_t layer) const;
  bool all_done() const { return layers_.back().done.load(std::memory_order_acquire) == chunks_; }

  std::vector<Layer> layers_;
  int threads_;
  Index chunks_ = 0;
  std::atomic<bool> failed_{false};
};

}  // namespace penstock::ops
