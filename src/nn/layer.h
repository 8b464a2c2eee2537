#pragma once

#include <span>

#include "base/random.h"
#include "nn/arena.h"
#include "nn/parameters.h"
#include "penstock/recurrent.h"

namespace penstock::nn {

/// What all layers share in one call. Sequences are padded and batch-first: a tensor [B, T, C] is B*T contiguous rows
/// of C channels.
struct Pass {
  Batch batch = {};  // lengths and reset masks as in Recurrent; cu_seqlens is not used here
  Execution execution = {};
  Arena* arena = nullptr;
  bool training = false;           // keep what backward() needs, and apply dropout
  std::uint64_t dropout_seed = 0;  // decides every dropout mask of this call

  Index rows() const { return batch.rows * batch.steps; }
};

/// Number of steps that row b has.
inline Index row_length(const Batch& batch, Index b) { return batch.lengths ? batch.lengths[b] : batch.steps; }

/// A map from [B, T, inputs] to [B, T, outputs] with parameters in a flat store and a state that is carried from call
/// to call. A layer remembers the pointers of its last training forward(): x, and what it took from the arena, must be
/// alive and unchanged when backward() follows.
template <class Real>
class Layer {
 public:
  virtual ~Layer() = default;

  virtual Index inputs() const = 0;
  virtual Index outputs() const = 0;
  /// Number of values in one row's state; zero values mean the start of a sequence.
  virtual Index state_size() const { return 0; }

  /// Points the layer at the flat store whose layout it was added to. Call again whenever values have changed.
  /// `gradients` may be null until backward() is called.
  virtual void bind(const Real* values, Real* gradients) = 0;
  /// Writes fresh values of this layer's parameters into the flat store.
  virtual void initialise(Real* values, Random& random) const = 0;

  /// y [B, T, outputs] from x [B, T, inputs]; state [B * state_size], in a layout of the layer's own, is read and
  /// overwritten. x and y must not overlap.
  virtual void forward(const Pass& pass, const Real* x, Real* y, Real* state) = 0;
  /// Makes step() ready: what it needs is looked up, packed and allocated now. Call again when values have changed.
  virtual void prepare_step(Precision precision) = 0;
  /// What forward() does for one step of one row outside training, to the bit as in exact mode: y [outputs] from
  /// x [inputs], state [state_size] in and out. Nothing overlaps, and nothing is allocated.
  virtual void step(const Real* x, Real* y, Real* state) = 0;
  /// Adds to the parameters' gradients; writes dx [B, T, inputs] unless null. dx and dy must not overlap. The state
  /// that came in is a constant: truncated back-propagation ends here.
  virtual void backward(const Pass& pass, const Real* dy, Real* dx) = 0;
};

}  // namespace penstock::nn
