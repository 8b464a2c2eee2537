#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "nn/model/model_impl.h"
#include "penstock/network.h"

/// The batches of a SessionPool: rows that get a state and a step each, and return outputs and the next state.
namespace penstock::streaming {

/// A batch of rows on one thread. A step, a state and outputs of a row have the sizes of its PoolForm.
class PoolRows {
 public:
  virtual ~PoolRows() = default;
  virtual Index rows() const = 0;
  /// Sets the state of a row, and what it reads next: an int32 token, or float features.
  virtual void set_row(Index row, const float* state, const void* step) = 0;
  /// Takes a step of all rows.
  virtual void step() = 0;
  /// Copies what the last step made of a row.
  virtual void copy_outputs(Index row, float* outputs) const = 0;
  virtual void copy_state(Index row, float* state) const = 0;
};

/// Sizes of one stream, and batches of it.
struct PoolForm {
  Index vocabulary = 0;  ///< 0: it reads features
  Index inputs = 0, outputs = 0, state_size = 0;
  std::vector<Index> sizes;  ///< Rows of the batches that a thread has, from 1 up.
  bool pads = false;         ///< Whether a batch of more rows than are ready is faster than several smaller ones.
  /// Makes the batches of a thread, in the order of `sizes`.
  std::function<std::vector<std::unique_ptr<PoolRows>>()> batches;
};

/// For a pool of `capacity` sessions; `execution` has one thread.
PoolForm form_of(const Model::Impl& model, Index capacity, const Execution& execution);
/// `shapes` are those of one stream. Throws Error as SessionPool.
PoolForm form_of(const Network& network, const NetworkShapes& shapes, Index capacity);

}  // namespace penstock::streaming
