#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "bench/suite/suite.h"

namespace penstock::bench {

/// One JSON object, with a line break at its end; docs/benchmarks.md lists its fields.
std::string report_json(const Report& report);

/// Returns a page in Markdown with the machine, the peers, the missing peers, and every table. Lines of prose have at
/// most `width` characters; 0 leaves paragraphs unbroken, for a reader that wraps them.
std::string report_markdown(const Report& report, std::size_t width = 118);

/// Draws the ratios with matplotlib, in the Python of the settings, and returns the bytes of the picture. The extension
/// of `path` chooses the format; the function does not write the file. Throws Error(io_failure) with the reason if
/// drawing fails, and Error(interrupted) once `stop` returns true.
std::string plot(const Report& report, const std::string& path, const std::function<bool()>& stop);

}  // namespace penstock::bench
