#pragma once

#include <vector>

#include "ops/recurrence/recurrence.h"
#include "plan/explain.h"

namespace penstock::ops {

/// What an op would be made of on a target: of target.device.is_cuda(), on machine.gpu, which need not be there.
std::vector<PlanReport> explain_recurrence(const Recurrence& shape, bool backward, const Target& target,
                                           const plan::Machine& machine);

/// What the planner is asked by the executables of a recurrence.
plan::Problem cpu_problem(const Recurrence& shape, const Target& target);
plan::GpuLayerProblem scan_problem(const Recurrence& shape, bool backward, const Target& target);
plan::GpuDenseProblem dense_problem(const Recurrence& shape, bool backward, const Target& target);

}  // namespace penstock::ops
