#pragma once

#include <vector>

#include "report/chart.h"
#include "report/run.h"

namespace penstock::cli::reporting {

/// What all runs have measured, each run a line: those charts in which there is something to see.
std::vector<Chart> training_charts(const std::vector<Run>& runs);

/// The forecasts of one run beside what came, a chart a column.
std::vector<Chart> forecast_charts(const Run& run);

/// What the loss of a run is called: "bits per byte", "mse".
std::string loss_name(const Run& run);

}  // namespace penstock::cli::reporting
