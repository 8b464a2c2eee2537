#pragma once

#include <string>

namespace penstock {

/// Where what took long to make is kept for later processes: PENSTOCK_CACHE_DIR, else penstock/ in XDG_CACHE_HOME or
/// ~/.cache. Empty: nowhere.
std::string cache_folder();

}  // namespace penstock
