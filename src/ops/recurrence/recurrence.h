#pragma once

#include "ops/op.h"

namespace penstock::ops {

/// One recurrent layer in one direction. Weights in the order that these ops read them: weight_ih [G*H, I], weight_hh
/// [G*H, H] (heads > 1: [heads, G*D, D]; absent for scan cells), bias_ih [G*H] or absent, bias_hh [G*H] or absent. The
/// K learnt vectors of a defined cell stand behind the gates of bias_ih, [(G + K)*H].
struct Recurrence {
  std::string cell;
  Index input = 1;   ///< I
  Index hidden = 1;  ///< H
  Index heads = 1;
  bool reverse = false;
  Bias bias = Bias::both;  ///< Which biases there are.

  // How its tensors lie. dx lies like x, and dy like y, unless said otherwise; y may be a part of wider rows.
  SequenceStrides x_strides = {}, y_strides = {}, dx_strides = {}, dy_strides = {};
  Index state_pitch = 1;        ///< From state to state of a row, in blocks of [B, H].
  int alignment = 256;          ///< Bytes that addresses of x, y and their gradients are multiples of.
  int parameter_alignment = 0;  ///< The same of weights and their gradients; 0: as in a flat store of parameters
  bool one_launch = false;      ///< GPUs, scan cells: a step of all rows is one launch.
  bool add_dx = false;          ///< The backward pass adds to dx instead of writing it.
  bool add_gradients = false;   ///< And to the gradients of weights.

  // CPUs: what is stored in bfloat16 though it is computed with in float, as takes_bf16() allows it. dx is stored as x
  // is, and dy as y; of weights, the matrices.
  bool bf16_x = false, bf16_y = false, bf16_weights = false;

  // Of dense cells.
  double gradient_clip = 0.0;  ///< Limit of the gradient that a step passes to the h before it; 0: none.
  bool every_state = false;    ///< Forward passes write the states but h after each step; those have gradients then.
  SequenceStrides state_strides = {};  ///< Of what they write, [B, T, (S - 1) * H], and of its gradient.

  /// Whether the cell has no recurrent matrix.
  bool is_scan() const;
  /// Values of a row's state, S*H, laid out [S, B, H] for a batch.
  Index state_size() const;
  /// Values of a row's states but h, (S - 1) * H.
  Index other_states_size() const { return state_size() - hidden; }
};

/// Throws Error(unsupported) for a cell that a program defined and a device other than a CPU.
void check_cell_device(std::string_view cell, Device device);

/// Whether what a CPU keeps of a forward pass is bfloat16, which its backward pass then expects.
bool rounds_tape(const Recurrence& shape, const Target& target);

/// Whether a layer's passes in one direction on a CPU read and write sequences of bfloat16 as they are and pack weights
/// of it, rather than wanting floats.
bool takes_bf16(const Recurrence& shape, bool backward, const Target& target);

/// What forward passes, backward passes or steps read instead of the weights, in a layout for this machine.
enum class Panels { forward, backward, step };

/// Whether an op on this target reads panels. A GPU's kernels read the weights themselves, and so do forward passes of
/// few positions that would have to pack them first.
bool reads_panels(const Recurrence& shape, Panels panels, const Target& target);
/// Tells panels of one layer apart from those for other precisions and instruction sets.
std::string panels_key(Panels panels, const Target& target);
/// Which panels a forward op on this target reads.
inline Panels forward_panels(const Target& target) { return target.step ? Panels::step : Panels::forward; }

/// weight_ih, weight_hh, bias_ih, bias_hh -> panels, of a size of its own
Op recurrence_panels(const Recurrence& shape, Panels panels);

/// x [B, T, I], state_in or absent, the four weights, panels or absent -> y [B, T, H], state_out (may be state_in where
/// no backward pass follows) or absent, tape (of a size of its own; absent unless one does), and of a recurrence with
/// every_state the states but h after each step [B, T, (S - 1) * H], in the type of states. Zeros in y and in these
/// beyond a row's length, where x is not read.
Op recurrence_forward(const Recurrence& shape);

/// x, y, dy, state_in, the four weights, panels or absent, tape, dstate_out or absent, the gradient of every state or
/// absent -> the four gradients, absent where the weight is, dx [B, T, I] or absent, dstate_in or absent. The gradient
/// of the state that came in is made where somebody wants it; otherwise truncated back-propagation ends here.
/// `wants_dx`: whether there is a dx.
Op recurrence_backward(const Recurrence& shape, bool wants_dx = true);

}  // namespace penstock::ops
