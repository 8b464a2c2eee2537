#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace penstock {

/// A control group (cgroup) of this process: what containers limit memory and processors by.
struct ControlGroup {
  std::string folder;  ///< May be missing: a container does not see the groups around its own
  int version = 2;
};

/// Calls visit(group) for the groups of this process that have a controller, such as "memory", and all their parents.
/// /proc and /sys lie in folder `root`, which is empty for this system.
void for_each_control_group(const std::string& root, std::string_view controller,
                            const std::function<void(const ControlGroup&)>& visit);

/// Returns the processors that the control groups of this process may keep busy, such as 1.5: the smallest quota of a
/// group and its parents; infinity if there is none.
double processor_quota(const std::string& root = "");

}  // namespace penstock
