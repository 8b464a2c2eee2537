#pragma once

// Parts of wavefronts of layers on a GPU: branches of a stream's work, their dependencies, and their memory. Private to
// src/core/ops/cuda.

#include <memory>
#include <vector>

#include "backend/cuda/driver/staging.h"
#include "ops/cuda/common.h"
#include "plan/wavefront.h"

namespace penstock::ops {

/// Parts of a memory, one after the other.
class ScratchPlaces {
 public:
  std::size_t take(std::size_t bytes) {
    const std::size_t at = bytes_;
    bytes_ += padded(bytes);
    return at;
  }
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_ = 0;
};

/// Two branches of a stream's work for each layer, one for its recurrence and one for products.
class LayerBranches {
 public:
  LayerBranches(cuda::Device& device, Index layers)
      : pairs_(static_cast<std::size_t>(std::min(layers, plan::wavefront_branches))), start_(device) {
    for (std::size_t i = 0; i < 2 * pairs_; ++i) {
      streams_.push_back(std::make_unique<cuda::Stream>(device));
      ends_.push_back(std::make_unique<cuda::Event>(device));
    }
  }

  cuda::StreamHandle of_recurrence(std::size_t layer) const { return streams_[layer % pairs_]->handle(); }
  cuda::StreamHandle of_product(std::size_t layer) const { return streams_[pairs_ + layer % pairs_]->handle(); }

  void fork(cuda::StreamHandle trunk) {
    start_.record(trunk);
    for (const auto& stream : streams_) start_.hold_back(stream->handle());
  }
  void join(cuda::StreamHandle trunk) {
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      ends_[i]->record(streams_[i]->handle());
      ends_[i]->hold_back(trunk);
    }
  }

 private:
  std::size_t pairs_;
  std::vector<std::unique_ptr<cuda::Stream>> streams_;
  cuda::Event start_;
  std::vector<std::unique_ptr<cuda::Event>> ends_;
};

/// The ends of a layer's latest two chunks. A stream that waits for one is told of it before the chunk after next is
/// put on its way.
class ChunkEvents {
 public:
  explicit ChunkEvents(cuda::Device& device) : even_(device), odd_(device) {}
  cuda::Event& of(Index number) { return number % 2 == 0 ? even_ : odd_; }

 private:
  cuda::Event even_, odd_;
};

/// Puts chunks of layers on their way in an order in which whatever a chunk waits for has been put on its way before:
/// `run(layer, number)`, layers counted in the order in which they follow each other.
template <class Run>
void run_waves(Index layers, Index chunks, const Run& run) {
  for (Index wave = 0; wave < chunks + layers - 1; ++wave) {
    for (Index layer = 0; layer < layers; ++layer) {
      const Index number = wave - layer;
      if (number >= 0 && number < chunks) run(layer, number);
    }
  }
}

}  // namespace penstock::ops
