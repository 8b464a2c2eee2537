#pragma once

#include <string>
#include <vector>

#include "penstock/forecast/score.h"

namespace penstock::cli {

/// Errors of a model on one series relative to those of the best baseline: their ratio, the geometric mean over
/// its columns; not a number where that is never wrong.
double ratio_to_rivals(const GroupScore& group);

/// How the series of a model compare: how many beat the best baseline, and a table from the worst to the best one, of
/// which the middle is left out if there are many.
std::vector<std::string> group_lines(const std::vector<GroupScore>& groups);

/// Numbers of the worst, the median and the best of so many series, each once.
std::vector<std::size_t> telling_groups(const std::vector<GroupScore>& groups);

}  // namespace penstock::cli
