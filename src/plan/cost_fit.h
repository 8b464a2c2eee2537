#pragma once

#include <functional>
#include <span>
#include <vector>

#include "penstock/types.h"

namespace penstock::plan {

/// A plan that was measured, and what would be estimated of it by other costs.
struct MeasuredTime {
  std::size_t work = 0;  ///< Plans of one work have the same number: 0, 1, ...
  double microseconds = 0;
  std::function<double(std::span<const double> costs)> estimate;  ///< Microseconds; 0: nothing is
};

/// Costs that bring estimates closer to what was measured.
struct CostFit {
  std::vector<double> costs;
  /// A factor by which estimates are off, in the mean of their squares: 1.2. By the costs before, and by these.
  double off_before = 1, off_after = 1;
};

/// Least squares of the logarithms of estimates over times. Each work may be slower or quicker as a whole than its
/// plans explain, and each cost moves only as far as the measurements pull it, by a factor of four at most: one that
/// none of them depends on stays as it is to the bit, and so do all of them where the plans that would then be chosen
/// were measured to be slower together.
CostFit fit_costs(std::vector<double> costs, const std::vector<MeasuredTime>& measured);

}  // namespace penstock::plan
