#pragma once

#include "nn/recurrent_graph.h"
#include "ops/recurrence.h"
#include "ops/recurrence_stack.h"
#include "plan/cell_table.h"

namespace penstock::nn {

/// What ops are told of the layers of a stack in one form of call: sizes, how sequences lie in memory, and in which
/// type they are stored. Refers to the spec and the form.
class StackShape {
 public:
  struct Place {
    Index layer = 0, direction = 0;
  };

  StackShape(const RecurrentSpec& spec, const RecurrentForm& form, const Execution& execution);

  /// What a caller stores in bfloat16 a GPU computes with. On a CPU, which computes in float, engines take it as it is,
  /// or it is cast: in both passes alike, since how x lies decides how the tape does. What a layer adds to, as that of
  /// a second direction does to dx, is of floats.
  void choose_storage(bool backward);

  const ops::Target& target() const { return target_; }
  /// Whether sequences of the caller's bfloat16 are cast from and to floats.
  bool casts() const { return casts_; }
  /// Whether panels are packed of weights in bfloat16.
  bool packs_bf16() const { return packs_bf16_; }

  /// Whether all layers are one node, which may run them side by side: where both directions are walked, a layer needs
  /// all of the one below.
  bool stacked() const { return spec_.layers > 1 && spec_.directions() == 1 && !target_.step; }

  ops::Recurrence layer(const Place& at) const;
  ops::RecurrenceStack all_layers() const;

  /// Those of a caller's sequence; rows after rows if it does not say them.
  SequenceStrides given_strides(const SequenceStrides& strides, Index width) const {
    return ops::strides_or(strides, {form_.steps * width, width});
  }
  /// Those of what a stack keeps to itself, such as what lies between layers: steps after steps if those of x do, so
  /// that one matrix is passed on, and where layers of a GPU may run in chunks, so that those are one matrix.
  SequenceStrides own_strides(Index width) const;

  /// Layers and directions.
  Index slots() const { return spec_.layers * spec_.directions(); }
  std::size_t index_of(const Place& at) const {
    return static_cast<std::size_t>(at.layer * spec_.directions() + at.direction);
  }
  bool reverse(const Place& at) const { return spec_.direction == Direction::reverse || at.direction == 1; }
  /// All values of the states, and those but h of one row in one direction.
  Index state_values() const { return cell_.info.states * slots() * form_.rows * spec_.hidden_size; }
  Index other_states() const { return (cell_.info.states - 1) * spec_.hidden_size; }
  bool scans() const { return cell_.info.scan; }

 private:
  const RecurrentSpec& spec_;
  const RecurrentForm& form_;
  ops::Target target_;
  const plan::CellTraits& cell_;
  bool stores_bf16_ = false, casts_ = false, packs_bf16_ = false;
};

}  // namespace penstock::nn
