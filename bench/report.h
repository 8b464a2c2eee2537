#pragma once

#include <functional>
#include <string>

#include "bench/suite.h"

namespace penstock::bench {

/// One JSON object, with a line break at its end; docs/benchmarks.md lists its fields.
std::string report_json(const Report& report);

/// A page with the machine, the peers, what is missing, and a table for each table; the same in a terminal.
std::string report_markdown(const Report& report);

/// Draws the ratios by matplotlib in the Python of the settings, and returns the bytes of the picture. The ending of
/// `path` says in which format; nothing is written there. Throws Error(io_failure) with the reason if there is no
/// picture,
/// and Error(interrupted) once `stop` says true.
std::string plot(const Report& report, const std::string& path, const std::function<bool()>& stop);

}  // namespace penstock::bench
