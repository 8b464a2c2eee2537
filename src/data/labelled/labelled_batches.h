#pragma once

#include "penstock/data/dataset.h"

namespace penstock::training {

/// Labelled sequences whose training part can be read without moving on in it.
class LabelledBatches {
 public:
  virtual ~LabelledBatches() = default;
  /// The i-th batch of at most `rows` training sequences, in an order that the seed alone decides; false (example
  /// untouched) when there are no more. As Dataset::validation has it.
  virtual bool training(Index i, Index rows, Example& example) const = 0;
};

}  // namespace penstock::training
