#pragma once

#include "plan/plan.h"
#include "plan/rule.h"

namespace penstock::plan {

/// Ways to run a recurrence on a CPU, the preferred ones first. Throws Error(invalid_argument) as make_plan() does.
std::vector<Rule<Plan>> cpu_rules(const Problem& problem, const CpuModel& cpu);

/// The same without the constraints that leave out what is not expected to pay: everything that can run.
std::vector<Rule<Plan>> possible_cpu_rules(const Problem& problem, const CpuModel& cpu);

enum class Scope { worthwhile, possible };

// One file each.
std::vector<Rule<Plan>> cpu_dense_rules(const Problem& problem, const CpuModel& cpu);
std::vector<Rule<Plan>> cpu_scan_rules(const Problem& problem, const CpuModel& cpu, Scope scope);

}  // namespace penstock::plan
