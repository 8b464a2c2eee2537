#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ops/op.h"
#include "ops/tensor_check.h"

namespace penstock::ops {

/// One recurrent layer in one direction. Weights in the order that these ops read them: weight_ih [G*H, I], weight_hh
/// [G*H, H] (heads > 1: [heads, G*D, D]; absent for scan cells), bias_ih [G*H] or absent, bias_hh [G*H] or absent. The
/// K learnt vectors of a custom cell stand behind the gates of bias_ih, [(G + K)*H].
struct Recurrence {
  std::string cell;
  Index input = 1;   ///< I
  Index hidden = 1;  ///< H
  Index heads = 1;
  bool reverse = false;
  Bias bias = Bias::both;  ///< Which biases there are.
  bool projected = false;  ///< Dense cells: x is W x, [B, T, G*H], and weight_ih is absent.

  // How its tensors lie. dx lies like x, and dy like y, unless said otherwise; y may be a part of wider rows.
  SequenceStrides x_strides = {}, y_strides = {}, dx_strides = {}, dy_strides = {};
  Index state_pitch = 1;                ///< From state to state of a row, in blocks of all rows' states of a layer.
  Restarts restarts = Restarts::zeros;  ///< Those of calls; state_in and dstate_in have blocks [state_rows(), H].
  int alignment = call_alignment;       ///< Bytes that addresses of x, y and their gradients are multiples of.
  int parameter_alignment = 0;          ///< Alignment of weights and their gradients; 0: as in a flat store
  bool one_launch = false;              ///< GPUs, scan cells: a step of all rows is one launch. Not in exact mode.
  bool add_dx = false;                  ///< The backward pass adds to dx instead of writing it.
  bool add_gradients = false;           ///< And to the gradients of weights.
  bool keep_tape = false;               ///< The backward pass does not write to the tape.

  // CPUs: what is stored in bfloat16 though it is computed with in float, as takes_bf16() allows it. dx is stored as x
  // is, and dy as y; of weights, the matrices.
  bool bf16_x = false, bf16_y = false, bf16_weights = false;

  /// CPUs, forward passes of built-in cells: weight_ih and weight_hh are int8 with a scale for each of their rows,
  /// which panels are made of; passes do not have them as operands.
  bool int8 = false;

  // Dense cells only.
  double gradient_clip = 0.0;  ///< Limit of the gradient that a step passes to the h before it; 0: none.
  bool every_state = false;    ///< Forward passes write the states but h after each step; those have gradients then.
  SequenceStrides state_strides = {};  ///< Strides of these states, [B, T, (S - 1) * H], and of their gradient.

  /// Returns whether the cell has no recurrent matrix.
  bool is_scan() const;
  /// Values of a row's state, S*H, laid out [S, B, H] for a batch.
  Index state_size() const;
  /// Values of a row's states but h, (S - 1) * H.
  Index other_states_size() const { return state_size() - hidden; }
};

/// Returns the extents of weight_ih and of weight_hh; those of an absent matrix are empty.
std::pair<std::vector<Index>, std::vector<Index>> matrix_extents(const Recurrence& shape);

/// Returns whether a CPU's tape is bfloat16, which the backward pass then expects.
bool rounds_tape(const Recurrence& shape, const Target& target);

/// Returns whether a layer's passes in one direction on a CPU take bfloat16 directly, for sequences and for the weights
/// that they pack. Otherwise they take floats.
bool takes_bf16(const Recurrence& shape, bool backward, const Target& target);

/// Passes that read packed weights (panels), in a layout for this machine.
enum class Panels { forward, backward, step };

/// Returns whether an op on this target reads panels. A GPU's kernels read the weights themselves, and so do forward
/// passes of few positions that would have to pack them first.
bool reads_panels(const Recurrence& shape, Panels panels, const Target& target);
/// Tells panels of one layer apart from those for other precisions and instruction sets.
std::string panels_key(Panels panels, const Target& target);
/// Returns the panels that a forward op on this target reads.
inline Panels forward_panels(const Target& target) {
  return target.has(CallFlag::step) ? Panels::step : Panels::forward;
}

/// Operands of recurrence_panels(), in order. Panels have a size of their own. Between weights of int8 and their panels
/// are the scales.
struct PanelsOperand {
  enum : int { weight_ih, weight_hh, bias_ih, bias_hh, panels, scale_ih = panels, scale_hh, int8_panels };
};
Op recurrence_panels(const Recurrence& shape, Panels panels);

/// Operands of recurrence_forward(), in order: what it reads, and from y on what it writes. Only x [B, T, I], y [B, T,
/// H] and weights that the cell has are always there. state_out may be state_in where no backward pass follows; the
/// tape, of a size of its own, is there if one does. states: those but h after each step; other recurrences than those
/// with every_state may end before this operand. y and states are zero beyond a row's length, where x is not read.
struct ForwardOperand {
  enum : int { x, state_in, weight_ih, weight_hh, bias_ih, bias_hh, panels, y, state_out, tape, states, count };
};
Op recurrence_forward(const Recurrence& shape);

/// Operands of recurrence_backward(), in order: what it reads, and from dweight_ih on what it writes. Without
/// dstate_in, truncated back-propagation ends here.
struct BackwardOperand {
  // clang-format off
  enum : int { x, y, dy, state_in, weight_ih, weight_hh, bias_ih, bias_hh, panels, tape, dstate_out, dstates,
               dweight_ih, dweight_hh, dbias_ih, dbias_hh, dx, dstate_in, count };
  // clang-format on
};
/// `wants_dx`: whether there is a dx.
Op recurrence_backward(const Recurrence& shape, bool wants_dx = true);

}  // namespace penstock::ops
