#pragma once

#include <span>

#include "penstock/types.h"

namespace penstock::training {

struct FoundSeason {
  Index rows = 1;
  double alike = 0.0;  ///< Mean correlation of changes a season apart, and two, and three.
};

/// Finds the season of series that repeat themselves after the same number of rows, scaled alike. Each adds to the
/// correlations in proportion to its rows.
FoundSeason look_for_season(std::span<const std::span<const double>> series);

}  // namespace penstock::training
