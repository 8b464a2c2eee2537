#include "base/warning.h"

#include <cstdio>
#include <mutex>
#include <set>

namespace penstock {

namespace {

/// Names of files and columns may hold what a terminal would obey.
std::string without_controls(const std::string& text) {
  std::string result;
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    result += code < 0x20 || code == 0x7f ? fmt::format("\\x{:02x}", code) : std::string(1, c);
  }
  return result;
}

}  // namespace

void print_warning(const std::string& text) {
  static std::mutex mutex;
  static std::set<std::string> printed;
  const std::lock_guard lock(mutex);
  if (printed.insert(text).second) fmt::print(stderr, "penstock: warning: {}\n", without_controls(text));
}

}  // namespace penstock
