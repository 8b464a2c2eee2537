#pragma once

#include <optional>
#include <string>

#include "penstock/plan.h"
#include "plan/gpu/dense.h"
#include "plan/gpu/layer.h"
#include "plan/gpu/product.h"
#include "plan/plan.h"

/// What the planner chooses, and what became of the rest, for one problem. Reports are without a plan where none is
/// possible, and say why.
namespace penstock::plan {

PlanReport explain(const GpuDenseProblem& problem, const GpuModel& gpu);
/// The recurrence, and where that is quicker the product of the input in the same launch.
PlanReport explain(const GpuLayerProblem& problem, const GpuModel& gpu);
PlanReport explain(const GpuProductProblem& problem, const GpuModel& gpu);
PlanReport explain(const Problem& problem, const CpuModel& cpu);

/// A product that a library makes: nothing to choose, but time to estimate.
PlanReport explain_library_product(Index m, Index n, Index k, Storage storage, bool tf32, const GpuModel& gpu);

/// "H100 (sm_90)"
std::string describe(const GpuModel& gpu);
/// "avx512, 1 MiB of second-level cache a core"
std::string describe(const CpuModel& cpu);

}  // namespace penstock::plan
