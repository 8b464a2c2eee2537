#pragma once

#include <string>
#include <vector>

#include "penstock/plan.h"

namespace penstock::cli {

/// Decides what --device auto has left open (`automatic`), from what a verb is going to do with a model, and says so in
/// a line on standard error unless `quiet`.
void settle_device(bool automatic, Execution& execution, const Model& model, DeviceQuestion question,
                   bool quiet = false);

/// The bytes of files together; 0 where one of them is not a file, such as standard input.
Index bytes_of_files(const std::vector<std::string>& paths);

}  // namespace penstock::cli
