// A small set of constraints that cannot hold together.
#include <algorithm>

#include "csp/search.h"

namespace penstock::csp {

std::vector<int> Search::conflict(Integer effort) {
  if (satisfiable()) return {};
  std::vector<int> groups;
  for (int group = 0; group < static_cast<int>(store_->groups.size()); ++group) groups.push_back(group);
  // Tries to remove groups with many variables first: the rest is easier to understand.
  std::vector<int> order = groups;
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return propagation_.width(a) > propagation_.width(b); });
  const auto set_all = [&](bool active) {
    for (const int group : groups) propagation_.set_active(group, active);
  };
  // The simplest conflict is a single constraint that no value satisfies, which propagation finds at once.
  set_all(false);
  const auto alone = std::find_if(order.rbegin(), order.rend(), [&](int group) {
    propagation_.set_active(group, true);
    const bool possible = start();
    propagation_.set_active(group, false);
    return !possible;
  });
  set_all(true);
  if (alone != order.rend()) return {*alone};
  // Groups that removed no value before the contradiction are not needed for it.
  const auto keep_used = [&] {
    for (const int group : groups) propagation_.set_active(group, propagation_.was_used(group));
  };
  const auto leave_out = [&](const auto& contradictory) {
    for (const int group : order) {
      if (!propagation_.is_active(group)) continue;
      propagation_.set_active(group, false);
      if (contradictory()) {
        keep_used();
      } else {
        propagation_.set_active(group, true);
      }
    }
  };
  // First by propagation alone, which is fast and mostly sufficient; the rest are small problems.
  if (!start()) leave_out([&] { return !start(); });
  leave_out([&] {
    last_step_ = effort < largest ? steps_ + effort : largest;
    return !satisfiable() && !gave_up_;
  });
  last_step_ = largest;
  std::vector<int> needed;
  for (const int group : groups) {
    if (propagation_.is_active(group)) needed.push_back(group);
  }
  set_all(true);
  return needed;
}

}  // namespace penstock::csp
