#pragma once

#include <utility>
#include <vector>

#include "data/dataset.h"
#include "penstock/data/dataset.h"

namespace penstock::data {

/// Walks through one long sequence in windows, for truncated back-propagation. The sequence has `training` steps,
/// numbered from 0, then `validation` steps; whoever holds the data fills in what belongs to each step.
///
/// Training: row b of B starts at step b/B of the training part and walks on from window to window; behind the last
/// step it starts again at step 0, which `reset` marks. Each row has its own position, so T may change at any time.
/// When B changes, the rows that remain walk on, new ones start at their b/B, and that batch does not continue the one
/// before.
///
/// The sequence may be several, one behind the other: their first steps, `starts`, are marked by `reset` too.
///
/// Validation: cut into B contiguous rows whose lengths differ by at most one step (fewer rows if they would be
/// shorter than one window, because every row starts without a past), walked side by side, each step once.
class StreamWindows {
 public:
  StreamWindows(Index training, Index validation, std::vector<Index> starts = {})
      : training_(training), validation_(validation), starts_(std::move(starts)) {}

  Index training() const { return training_; }
  Index held_out() const { return validation_; }
  const std::vector<Index>& starts() const { return starts_; }

  /// Fills shape, lengths, reset and continues of the example, and the step that each of its [B, T] places shows.
  void next(Index rows, Index steps, Example& example, std::vector<Index>& places);
  /// Fills the i-th validation batch in the same way; -1 for places beyond a row's length. Returns false if there are
  /// no more.
  bool validation(Index i, Index rows, Index steps, Example& example, std::vector<Index>& places) const;

  const std::vector<Index>& positions() const { return positions_; }
  /// False if they lie outside the training part.
  bool restore(std::vector<Index> positions);

 private:
  bool starts_at(Index step) const;
  static void mark(Example& example, Index row, Index step);

  Index training_;
  Index validation_;
  std::vector<Index> starts_;     // rising
  std::vector<Index> positions_;  // next step of each row; empty before the first batch
};

}  // namespace penstock::data
