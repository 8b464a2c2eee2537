#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "report/chart.h"
#include "report/run.h"

namespace penstock::cli::reporting {

/// Text as it can stand in a page or in an attribute.
std::string html(std::string_view text);

/// The whole page: everything that it shows is in it.
std::string page(const std::vector<Run>& runs, const std::vector<Chart>& training,
                 const std::vector<std::vector<Chart>>& forecasts);

// The texts of style.css, script.js and draw.py, which the build puts into the program.
extern const char* const style_text;
extern const char* const script_text;
extern const char* const draw_text;

}  // namespace penstock::cli::reporting
