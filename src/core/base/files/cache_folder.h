#pragma once

#include <string>

namespace penstock {

/// Returns the folder that keeps slow results for later processes: PENSTOCK_CACHE_DIR, else penstock/ in XDG_CACHE_HOME
/// or ~/.cache. Empty: none.
std::string cache_folder();

}  // namespace penstock
