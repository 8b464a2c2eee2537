#include "base/warning.h"

#include <cstdio>
#include <mutex>
#include <set>

namespace penstock {

void print_warning(const std::string& text) {
  static std::mutex mutex;
  static std::set<std::string> printed;
  const std::lock_guard lock(mutex);
  if (printed.insert(text).second) fmt::print(stderr, "penstock: warning: {}\n", text);
}

}  // namespace penstock
