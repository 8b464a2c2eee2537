#pragma once

#include "ops/op.h"

namespace penstock::ops {

/// One recurrent layer in one direction. Weights in the order that these ops read them: weight_ih [G*H, I], weight_hh
/// [G*H, H] (heads > 1: [heads, G*D, D]; absent for scan cells), bias_ih [G*H] or absent, bias_hh [G*H] or absent.
struct Recurrence {
  std::string cell;
  Index input = 1;   ///< I
  Index hidden = 1;  ///< H
  Index heads = 1;
  bool reverse = false;

  /// Whether the cell has no recurrent matrix.
  bool is_scan() const;
  /// Values of a row's state, S*H, laid out [S, B, H] for a batch.
  Index state_size() const;
};

/// What forward passes, backward passes or steps read instead of the weights, in a layout for this machine.
enum class Panels { forward, backward, step };

/// Whether an op on this target reads panels; a GPU's kernels read the weights themselves.
bool reads_panels(const Target& target);
/// Tells panels of one layer apart from those for other precisions and instruction sets.
std::string panels_key(Panels panels, const Target& target);
/// Which panels a forward op on this target reads.
inline Panels forward_panels(const Target& target) { return target.step ? Panels::step : Panels::forward; }

/// weight_ih, weight_hh, bias_ih, bias_hh -> panels, of a size of its own
Op recurrence_panels(const Recurrence& shape, Panels panels);

/// x [B, T, I], state_in, the four weights, panels or absent -> y [B, T, H], state_out (may be state_in where no
/// backward pass follows), tape (of a size of its own; absent unless one does). Zeros in y beyond a row's length.
Op recurrence_forward(const Recurrence& shape);

/// x, y, dy, state_in, the four weights, panels or absent, tape -> the four gradients, absent where the weight is, and
/// dx [B, T, I]. The state that came in is a constant: truncated back-propagation ends here.
Op recurrence_backward(const Recurrence& shape);

}  // namespace penstock::ops
