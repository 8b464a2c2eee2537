#pragma once

#include <vector>

#include "ops/op.h"

namespace penstock::ops {

struct ClearPadding {
  Index width = 1;
};

/// UnaryOperand: copies features [B, T, width], with zeros beyond a row's length: padding may hold anything, NaN
/// included, which zero gradients would not keep out of the weights.
Op clear_padding(Index width);

/// A series by its changes. For every column that is an input and a target, the layers read the change from the row
/// before next to the value, and what they say is the change from the row that was read. They then need not learn to
/// copy a number, nor to tell apart values that differ little, nor to reach values that training never saw. The value
/// itself they read as its hyperbolic tangent: one that has grown beyond all of training looks like the largest of
/// those.
///
/// There are no parameters, and inputs have no gradient: nothing is to be done in a backward pass. S below is the
/// number of such columns, I that of the inputs.
struct Changes {
  /// An input that is a target too: normalised as a target it is offset + factor * input.
  struct Shared {
    Index input, target;
    double factor, offset;
  };

  Index inputs = 1, targets = 1, horizon = 1;
  double change_scale = 1.0;  ///< Factor of changes from row to row, in normalised targets
  std::vector<Shared> columns;

  Index shared() const { return static_cast<Index>(columns.size()); }
  /// I + S
  Index width() const { return inputs + shared(); }
  /// The S values of the row before, and whether there was one: zeros mean the start.
  Index state_size() const { return shared() + 1; }
};

struct ReadChanges {
  Changes changes;
};

struct AddLastValues {
  Changes changes;
};

// clang-format off
/// Reads features [B, T, I], state_in [B, S + 1]. Writes y [B, T, I + S]: the features, bounded where shared, then the
/// changes (0 at the start of a sequence; zeros beyond a row's length). Writes state_out, which may be state_in.
struct ReadChangesOperand { enum : int { features, state_in, y, state_out }; };
Op read_changes(const Changes& changes);

/// Adds to outputs [B, T, horizon, targets], in place, what forecasts start from: the values of the rows of features
/// normalised as targets. Neither is touched beyond a row's length.
struct AddLastValuesOperand { enum : int { features, outputs_in, outputs }; };
Op add_last_values(const Changes& changes);
// clang-format on

}  // namespace penstock::ops
