#pragma once

#include "plan/plan.h"
#include "plan/rule.h"

namespace penstock::plan {

/// Returns the rules for a recurrence on a CPU, preferred ones first. Throws Error(invalid_argument) as make_plan()
/// does.
std::vector<Rule<Plan>> cpu_rules(const Problem& problem, const CpuModel& cpu);

/// Returns the rules without the constraints that exclude plans expected to be slow: everything that can run.
std::vector<Rule<Plan>> possible_cpu_rules(const Problem& problem, const CpuModel& cpu);

enum class Scope { worthwhile, possible };

// One file each.
std::vector<Rule<Plan>> cpu_dense_rules(const Problem& problem, const CpuModel& cpu, Scope scope);
std::vector<Rule<Plan>> cpu_scan_rules(const Problem& problem, const CpuModel& cpu, Scope scope);

}  // namespace penstock::plan
