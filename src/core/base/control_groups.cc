#include "base/control_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <utility>

namespace penstock {
namespace {

/// Visits a group and its parents. A container may see its own group as the outermost one, under the host's name of it,
/// so that inner folders may be missing.
void visit_with_parents(const std::string& mount, std::string group, int version,
                        const std::function<void(const ControlGroup&)>& visit) {
  for (bool outermost = false; !outermost;) {
    outermost = group.empty() || group == "/";
    visit({outermost ? mount : mount + group, version});
    group.resize(std::min(group.size(), group.rfind('/')));
  }
}

/// The first numbers of a file; NaN where there is none, as with the word "max".
std::pair<double, double> numbers_in(const std::string& path) {
  constexpr double none = std::numeric_limits<double>::quiet_NaN();
  std::ifstream file(path);
  double first = none, second = none;
  if (!(file >> first)) return {none, none};
  if (!(file >> second)) second = none;
  return {first, second};
}

}  // namespace

void for_each_control_group(const std::string& root, std::string_view controller,
                            const std::function<void(const ControlGroup&)>& visit) {
  const std::string mount = root + "/sys/fs/cgroup";
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // "4:cpu,cpuacct:/group", or "0::/group" of version 2
    const std::size_t name = line.find(':') + 1, group = line.find(':', name) + 1;
    if (name == 0 || group == 0) continue;
    const std::string controllers = line.substr(name, group - 1 - name);
    if (controllers.empty()) visit_with_parents(mount, line.substr(group), 2, visit);
    if (fmt::format(",{},", controllers).find(fmt::format(",{},", controller)) == std::string::npos) continue;
    // A hierarchy of several controllers is mounted under all their names together, and mostly under each of them.
    visit_with_parents(fmt::format("{}/{}", mount, controller), line.substr(group), 1, visit);
    if (controllers != controller) {
      visit_with_parents(fmt::format("{}/{}", mount, controllers), line.substr(group), 1, visit);
    }
  }
}

double processor_quota(const std::string& root) {
  double least = std::numeric_limits<double>::infinity();
  for_each_control_group(root, "cpu", [&](const ControlGroup& group) {
    auto [quota, period] = numbers_in(group.folder + (group.version == 2 ? "/cpu.max" : "/cpu.cfs_quota_us"));
    if (group.version == 1) period = numbers_in(group.folder + "/cpu.cfs_period_us").first;
    if (quota > 0 && period > 0) least = std::min(least, quota / period);  // -1: no limit
  });
  return least;
}

}  // namespace penstock
