#pragma once

#include <string>
#include <vector>

#include "penstock/forecast/score.h"

namespace penstock::cli {

/// Errors of a model on one series relative to those of the best baseline: their ratio, the geometric mean over
/// its columns; not a number where that is never wrong.
double ratio_to_rivals(const GroupScore& group);

/// Returns how many series of a model beat the best baseline, and a table from the worst to the best one. If there are
/// more than `most`, the middle is left out. `heading`: what the groups are.
std::vector<std::string> group_lines(const std::vector<GroupScore>& groups, const std::string& heading = "series",
                                     std::size_t most = 12);

/// Numbers of the worst, the median and the best of so many series, each once.
std::vector<std::size_t> telling_groups(const std::vector<GroupScore>& groups);

}  // namespace penstock::cli
