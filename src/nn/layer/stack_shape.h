#pragma once

#include "nn/layer/recurrent_graph.h"
#include "ops/recurrence/recurrence.h"
#include "ops/recurrence/recurrence_stack.h"
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

  /// A GPU computes with the caller's bfloat16. A CPU computes in float: its engines read bfloat16 as it lies, or it is
  /// cast. Both passes do the same, since the layout of x decides that of the tape. Whatever is added to is float, such
  /// as the dx that both directions share.
  void choose_storage(bool backward);

  const ops::Target& target() const { return target_; }
  /// Whether sequences of the caller's bfloat16 are cast from and to floats.
  bool casts() const { return casts_; }
  /// Whether panels are packed from weights in bfloat16.
  bool packs_bf16() const { return packs_bf16_; }

  /// Whether all layers are one node, which may run them side by side: where both directions are walked, a layer needs
  /// all of the one below.
  bool stacked() const { return spec_.layers > 1 && spec_.directions() == 1 && !target_.step; }

  ops::Recurrence layer(const Place& at) const;
  ops::RecurrenceStack all_layers() const;

  /// Strides of a caller's sequence; those of contiguous rows where none are given.
  SequenceStrides given_strides(const SequenceStrides& strides, Index width) const {
    return ops::strides_or(strides, {form_.steps * width, width});
  }
  /// Strides of what a stack keeps to itself, such as sequences between layers: time-first if x is, so that one matrix
  /// is passed on, and where layers of a GPU may run in chunks, so that each chunk is one matrix.
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
