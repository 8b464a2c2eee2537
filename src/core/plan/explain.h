#pragma once

#include <string>

#include "penstock/plan.h"
#include "plan/gpu/dense.h"
#include "plan/gpu/product.h"
#include "plan/gpu/scan_layer.h"
#include "plan/plan.h"

/// Reports on the plan for a problem and on the rejected alternatives. If no plan is possible, a report gives the
/// reason.
namespace penstock::plan {

PlanReport explain(const GpuDenseProblem& problem, const GpuModel& gpu);
/// Reports on the recurrence, with the input product in the same launch if that is faster.
PlanReport explain(const GpuLayerProblem& problem, const GpuModel& gpu);
PlanReport explain(const GpuProductProblem& problem, const GpuModel& gpu);
PlanReport explain(const Problem& problem, const CpuModel& cpu);

/// Reports on a product by a library: there is nothing to choose, only a time to estimate.
PlanReport explain_library_product(Index m, Index n, Index k, Storage storage, bool tf32, const GpuModel& gpu);

/// Returns a short text such as "H100 (sm_90)".
std::string describe(const GpuModel& gpu);
/// Returns a short text such as "avx512, 1 MiB of second-level cache a core".
std::string describe(const CpuModel& cpu);

}  // namespace penstock::plan
