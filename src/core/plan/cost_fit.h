#pragma once

#include <functional>
#include <span>
#include <vector>

#include "penstock/types.h"

namespace penstock::plan {

/// A measured plan, and its estimate as a function of the costs.
struct MeasuredTime {
  std::size_t work = 0;  ///< Number of the problem, 0, 1, ...; equal for all plans of one problem
  double microseconds = 0;
  std::function<double(std::span<const double> costs)> estimate;  ///< Microseconds; 0: no estimate
};

/// Costs that bring estimates closer to measured times.
struct CostFit {
  std::vector<double> costs;
  /// Root mean square error of the estimates as a factor, such as 1.2, with the old and with the new costs.
  double off_before = 1, off_after = 1;
};

/// Fits costs by least squares of the logarithm of estimate over time. Each problem has a free factor, since it may be
/// slower or faster as a whole than its plans explain. A penalty keeps costs near their old values, and each changes by
/// a factor of four at most. A cost that no measurement depends on keeps its exact value. All costs stay unchanged if
/// the plans that the new costs would choose were measured to be slower in total.
CostFit fit_costs(std::vector<double> costs, const std::vector<MeasuredTime>& measured);

}  // namespace penstock::plan
