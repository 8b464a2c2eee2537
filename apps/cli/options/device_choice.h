#pragma once

#include <string>
#include <vector>

#include "penstock/plan.h"

namespace penstock::cli {

/// Decides what --device auto has left open (`automatic`), from what a command is going to do with a model, and says so
/// in a line on standard error unless `quiet`.
void resolve_device(bool automatic, Execution& execution, const Model& model, DeviceQuestion question,
                    bool quiet = false);

/// Returns the work of a process that answers the content of some files, a piece of a sequence at a time.
DeviceQuestion reading_of(const Model& model, const std::vector<std::string>& paths);

}  // namespace penstock::cli
