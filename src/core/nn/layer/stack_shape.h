#pragma once

#include "nn/layer/recurrent_graph.h"
#include "ops/recurrence/recurrence.h"
#include "ops/recurrence/recurrence_stack.h"
#include "plan/cell_table.h"

/// Shapes, strides and storage types of the layers of a recurrent stack.
namespace penstock::nn {

/// Shapes that ops get for the layers of a stack in one form of call: sizes, strides, and storage types. Keeps
/// references to the spec and the form.
class StackShape {
 public:
  struct Place {
    Index layer = 0, direction = 0;
  };

  StackShape(const RecurrentSpec& spec, const RecurrentForm& form, const Execution& execution);

  /// Chooses the storage types of a pass. A GPU computes with the caller's bfloat16. A CPU computes in float: its
  /// engines read bfloat16 directly, or casts convert it. Both passes choose the same, since the layout of x decides
  /// the layout of the tape. Sums, such as the dx of two directions, are float.
  void choose_storage(bool backward);

  const ops::Target& target() const { return target_; }
  /// Returns whether the caller's bfloat16 sequences are cast to and from floats.
  bool casts() const { return casts_; }
  /// Returns whether panels are packed from bfloat16 weights.
  bool packs_bf16() const { return packs_bf16_; }

  /// Returns whether all layers are one node, which may run them in parallel. A bidirectional layer cannot: it needs
  /// the whole sequence of the layer below.
  bool stacked() const { return spec_.layers > 1 && spec_.directions() == 1 && !target_.has(CallFlag::step); }

  ops::Recurrence layer(const Place& at) const;
  ops::RecurrenceStack all_layers() const;

  /// Returns the strides of a caller's sequence; without any, those of contiguous rows.
  SequenceStrides given_strides(const SequenceStrides& strides, Index width) const {
    return ops::strides_or(strides, {form_.steps * width, width});
  }
  /// Returns the strides of internal sequences, such as those between layers. They are time-first if x is, which passes
  /// one matrix on, and where layers of a GPU may run in chunks, which makes each chunk one matrix.
  SequenceStrides own_strides(Index width) const;

  /// Returns the number of layers times directions.
  Index slots() const { return spec_.layers * spec_.directions(); }
  std::size_t index_of(const Place& at) const {
    return static_cast<std::size_t>(at.layer * spec_.directions() + at.direction);
  }
  bool reverse(const Place& at) const { return spec_.direction == Direction::reverse || at.direction == 1; }
  /// state_values() is the size of the states of all rows; other_states() that of all states but h of one row in one
  /// direction.
  Index state_values() const { return cell_.info.states * slots() * form_.rows * spec_.hidden_size; }
  /// state_in has entering_values(), in blocks of entering_rows() for each layer and direction.
  Index entering_values() const { return state_values() / form_.rows * entering_rows(); }
  Index entering_rows() const { return state_rows(form_.restarts, form_.rows, form_.steps); }
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
