#pragma once

#include "plan/plan.h"
#include "plan/rule.h"

namespace penstock::plan {

/// Ways to run a recurrence on a CPU, the preferred ones first. Throws Error(invalid_argument) as make_plan() does.
std::vector<Rule<Plan>> cpu_rules(const Problem& problem, const CpuModel& cpu);

// One file each.
std::vector<Rule<Plan>> cpu_dense_rules(const Problem& problem, const CpuModel& cpu);
std::vector<Rule<Plan>> cpu_scan_rules(const Problem& problem, const CpuModel& cpu);

}  // namespace penstock::plan
