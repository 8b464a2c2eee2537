// Free memory by Linux's /proc and control groups.

#include "base/free_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>
#include <limits>
#include <sstream>
#include <string_view>

#include "base/control_groups.h"

namespace penstock {
namespace {

using Bytes = std::uint64_t;

constexpr Bytes unlimited = std::numeric_limits<Bytes>::max();

Bytes difference(Bytes from, Bytes what) { return from > what ? from - what : 0; }

/// The first word of a file as a number; unlimited where there is no file, or the word "max".
Bytes number_in(const std::string& path) {
  std::ifstream file(path);
  Bytes number = 0;
  return file >> number ? number : unlimited;
}

/// The number behind a name in a file of lines such as "MemAvailable: 123 kB"; 0 where there is none.
Bytes number_of(const std::string& path, std::string_view name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string word;
    Bytes number = 0;
    if (words >> word >> number && word == name) return number;
  }
  return 0;
}

/// How the two versions of control groups name the same things.
struct GroupFiles {
  const char* limit;
  const char* usage;
  std::array<const char*, 2> cached;  ///< In memory.stat: copies of files, which the system frees when memory is needed
};
constexpr GroupFiles version_1{
    "memory.limit_in_bytes", "memory.usage_in_bytes", {"total_inactive_file", "total_active_file"}};
constexpr GroupFiles version_2{"memory.max", "memory.current", {"inactive_file", "active_file"}};

/// Returns the memory that the groups of the process and all their parents leave.
Bytes left_by_groups(const std::string& root) {
  Bytes left = unlimited;
  for_each_control_group(root, "memory", [&](const ControlGroup& group) {
    const GroupFiles& files = group.version == 1 ? version_1 : version_2;
    const Bytes limit = number_in(group.folder + "/" + files.limit);
    if (limit == unlimited) return;
    Bytes used = number_in(group.folder + "/" + files.usage);
    for (const char* const name : files.cached) used = difference(used, number_of(group.folder + "/memory.stat", name));
    left = std::min(left, difference(limit, used));
  });
  return left;
}

/// Returns what is left of the address space that the process may use.
Bytes left_by_address_space() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return unlimited;
  const Bytes pages = number_in("/proc/self/statm");
  if (pages == unlimited) return unlimited;
  return difference(limit.rlim_cur, pages * static_cast<Bytes>(sysconf(_SC_PAGESIZE)));
}

}  // namespace

std::size_t free_memory(const std::string& root) {
  const std::string meminfo = root + "/proc/meminfo";
  // Pages that hold copies of files count as free, as they do for the system.
  const Bytes available = number_of(meminfo, "MemAvailable:");
  const Bytes system = available == 0 ? unlimited : (available + number_of(meminfo, "SwapFree:")) << 10;
  const Bytes left = std::min(system, left_by_groups(root));
  return left == unlimited ? 0 : static_cast<std::size_t>(std::max<Bytes>(left, 1));
}

std::size_t free_memory() {
  const std::size_t left = free_memory("");
  const Bytes addresses = left_by_address_space();
  if (addresses == unlimited) return left;
  const Bytes least = left == 0 ? addresses : std::min<Bytes>(left, addresses);
  return static_cast<std::size_t>(std::max<Bytes>(least, 1));
}

}  // namespace penstock
