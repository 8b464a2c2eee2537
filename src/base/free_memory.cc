#include "base/free_memory.h"

#include <fstream>
#include <string>

namespace penstock {

// Linux. Pages that hold copies of files count as free, as they do for the system.
std::size_t free_memory() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  for (std::size_t kilobytes = 0; file >> name >> kilobytes; file.ignore(80, '\n')) {
    if (name == "MemAvailable:") return kilobytes << 10;
  }
  return 0;
}

}  // namespace penstock
