#pragma once

#include <memory>

#include "penstock/data/dataset.h"

namespace penstock::training {

/// Data of whose training part another part can be held out, so that choices can be made without the rest.
class Divisible {
 public:
  virtual ~Divisible() = default;

  /// How many different divisions are worth averaging over.
  virtual Index folds() const { return 1; }
  /// The training part by itself: of what has an order in time the end is held out, of labelled sequences other ones
  /// for each fold.
  virtual std::unique_ptr<Dataset> inner(Index fold) const = 0;

  /// A dataset that can be divided; null if it is generated without end.
  static const Divisible* of(const Dataset& data) { return dynamic_cast<const Divisible*>(&data); }
};

}  // namespace penstock::training
