#pragma once

#include <vector>

#include "ops/recurrence/recurrence.h"

namespace penstock::ops {

/// Layers on top of each other that run in the same direction: where that is quicker as a wavefront, in which a
/// layer runs one chunk of steps while the layer below runs the next; elsewhere one after the other. On a CPU the
/// results are the same bits; on a GPU, where layers have plans for a share of the chip, they are the same bits every
/// time.
struct RecurrenceStack {
  std::vector<Recurrence> layers;  ///< The lowest first. All others read the y of the one below.
  double dropout = 0.0;            ///< Dropout of the inputs of all layers but the lowest, in training
};

/// The dropout of the output of a layer of a stack.
inline std::uint64_t dropout_site(std::size_t layer) { return static_cast<std::uint64_t>(layer); }

/// x [B, T, I]; then for each layer: state_in or absent, the four weights, panels or absent -> for each layer: y [B, T,
/// H], state_out (may be state_in where no backward pass follows) or absent, tape (absent unless one does); then the
/// states but h of the highest layer after each step, or absent.
Op recurrence_stack_forward(const RecurrenceStack& stack);

/// x, dy [B, T, H] of the highest layer, the gradient of its every state or absent; then for each layer: y, state_in or
/// absent, the four weights, panels or absent, tape, dstate_out or absent -> for each layer: the four gradients, absent
/// where the weight is, dstate_in or absent; then dx [B, T, I] or absent. `wants_dx`: whether there is a dx.
Op recurrence_stack_backward(const RecurrenceStack& stack, bool wants_dx);

}  // namespace penstock::ops
