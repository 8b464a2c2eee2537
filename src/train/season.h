#pragma once

#include <span>

#include "penstock/types.h"

namespace penstock::training {

/// As find_season(), of series that repeat themselves after the same number of rows, scaled alike: each adds to the
/// correlations as its rows do.
Index find_common_season(std::span<const std::span<const double>> series);

}  // namespace penstock::training
