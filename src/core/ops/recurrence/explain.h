#pragma once

#include <vector>

#include "ops/recurrence/recurrence.h"
#include "plan/explain.h"

namespace penstock::ops {

/// Returns the plans that an op on a target would use. On a GPU (target.device.is_cuda()) they are for machine.gpu,
/// which need not be this machine's.
std::vector<PlanReport> explain_recurrence(const Recurrence& shape, bool backward, const Target& target,
                                           const plan::Machine& machine);

/// Throws Error(unsupported) for precisions of GPUs on a CPU.
void check_precision(const Execution& execution);

/// Return the problems that executables of a recurrence ask the planner to solve.
plan::Problem cpu_problem(const Recurrence& shape, const Target& target);
plan::GpuLayerProblem scan_problem(const Recurrence& shape, bool backward, const Target& target);
plan::GpuDenseProblem dense_problem(const Recurrence& shape, bool backward, const Target& target);

}  // namespace penstock::ops
