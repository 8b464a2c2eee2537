#pragma once

#include <string>

#include "report/run.h"

/// The first lines of a report: which data, which model, and whether it beats its baselines.
namespace penstock::cli::reporting {

/// Returns the name of the data that the run was scored on or trained on, without its folders; empty if unknown.
std::string data_name(const Run& run);

/// Returns the description of the model, without layers that have no part in its answers.
std::string model_name(const Run& run);

/// Returns whether the model is better than its baselines, in the terminal's words; empty if nothing was scored.
std::string verdict(const Run& run);

}  // namespace penstock::cli::reporting
