#include "base/files/cache_folder.h"

#include "base/environment.h"

namespace penstock {

std::string cache_folder() {
  const auto variable = [](const char* name) { return std::string(environment(name) ? environment(name) : ""); };
  if (const char* chosen = environment("PENSTOCK_CACHE_DIR")) return chosen;
  std::string base = variable("XDG_CACHE_HOME");
  if (const std::string home = variable("HOME"); base.empty() && !home.empty()) base = home + "/.cache";
  return base.empty() ? "" : base + "/penstock";
}

}  // namespace penstock
