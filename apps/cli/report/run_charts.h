#pragma once

#include <vector>

#include "report/chart.h"
#include "report/run.h"

namespace penstock::cli::reporting {

/// Returns the charts of all runs' measurements, each run a line; charts without data are left out.
std::vector<Chart> training_charts(const std::vector<Run>& runs);

/// The forecasts of one run beside what came, a chart a column.
std::vector<Chart> forecast_charts(const Run& run);

/// Returns the name of a run's loss: "bits per byte", "mse".
std::string loss_name(const Run& run);

}  // namespace penstock::cli::reporting
