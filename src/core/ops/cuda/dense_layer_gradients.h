#pragma once

#include <optional>

#include "backend/cuda/product/gradient_products.h"
#include "ops/cuda/dense_layer.h"

namespace penstock::ops {

/// The backward pass of a layer of a dense cell on a GPU in its parts: the pass over the steps, whole or some steps at
/// a time, and the products over all positions that follow. Of a layer over W x, the pass over the steps makes dx.
/// Private to src/core/ops/cuda.
///
/// The operands x, y, dy, state_in, the four weights, panels, tape, dstate_out, dstates -> the four gradients, dx,
/// dstate_in.
class DenseLayerGradients {
  using Of = BackwardOperand;

 public:
  /// `wants_dx`: whether the products make dx. `plan`: of that pass, if it is the caller's.
  DenseLayerGradients(const Recurrence& shape, bool wants_dx, const Target& target,
                      const std::optional<plan::GpuDensePlan>& plan);

  std::size_t scratch_bytes() const { return loop_place() + padded(recurrence_.scratch_bytes()); }
  std::size_t persistent_bytes() const {
    return recurrence_.counters_bytes() + (products_ ? padded(products_->sums_bytes()) : 0);
  }
  cuda::DenseSpec spec() const { return dense_spec(shape_, target_); }

  /// Brings operands to where they are read, and gives the pass over all steps its addresses.
  const cuda::DenseBackward& enter(const Call& call, const Operands& memory);
  /// The pass over all steps of the call that has entered.
  const cuda::DenseBackward& whole() const { return loop_; }
  /// `loop`: that of all steps, or of some (cuda::steps_of).
  void run_loop(const Call& call, const Operands& memory, const cuda::DenseBackward& loop) const {
    recurrence_.run_loop(loop, address_of(memory.scratch) + loop_place(), stream_of(call));
  }
  /// Makes all gradients but those of the pass over the steps, once it is complete, and brings them to where they are
  /// wanted.
  void finish(const Call& call, const Operands& memory) const;

  /// The products of so many positions.
  cuda::GradientShape products_of(Index positions) const;

 private:
  bool makes_dx() const { return shape_.projected && wants_dx_; }
  std::size_t drh_place() const { return makes_dx() ? 0 : tape_.gates; }
  std::size_t products_place() const { return drh_place() + (tape_.split ? tape_.gates : 0); }
  std::size_t input_place() const { return products_place() + (products_ ? padded(products_->products_bytes()) : 0); }
  std::size_t gradients_place() const { return input_place() + input_.scratch_bytes(); }
  std::size_t state_place() const { return gradients_place() + gradients_.scratch_bytes(); }
  std::size_t loop_place() const { return state_place() + 3 * states_.scratch_bytes(); }
  const SequenceStrides& dy_strides() const { return strides_or(shape_.dy_strides, shape_.y_strides); }
  cuda::DenseBackward planned() const;
  cuda::DenseBackwardExecutable loop_by(const std::optional<plan::GpuDensePlan>& plan) const;

  Recurrence shape_;
  Target target_;
  bool wants_dx_;
  TapePlaces tape_;
  InputMatrix input_;
  LayerGradients gradients_;
  StateBlocks states_;
  cuda::DenseBackward loop_;
  cuda::DenseBackwardExecutable recurrence_;
  std::optional<cuda::GradientProducts> products_;
};

}  // namespace penstock::ops
