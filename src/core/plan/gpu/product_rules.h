#pragma once

#include <fmt/format.h>

#include <algorithm>

#include "plan/gpu/product.h"
#include "plan/rule.h"

namespace penstock::plan {

using ProductRule = Rule<GpuProductPlan>;

/// Returns the rules for products, one file each.
std::vector<ProductRule> product_rules(const GpuProductProblem& problem, const GpuModel& gpu);
ProductRule warp_product_rule(const GpuProductProblem& problem, const GpuModel& gpu);
ProductRule warpgroup_product_rule(const GpuProductProblem& problem, const GpuModel& gpu);
ProductRule pairs_product_rule(const GpuProductProblem& problem, const GpuModel& gpu);

/// Largest number of blocks of one launch.
constexpr Index kMaxProductBlocks = Index{0x7fffffff};

constexpr Index rounded_up(Index n, Index to) { return (n + to - 1) / to * to; }

/// Splits K into `wanted` parts of whole steps, or into fewer if they would be too short.
inline void set_splits(GpuProductPlan& plan, const GpuProductProblem& problem, Index wanted,
                       Index step = GpuProductPlan::step) {
  const Index shortest = 4 * step;
  const Index most = problem.one_split ? 1 : std::max<Index>(1, problem.k / shortest);
  plan.splits = std::clamp<Index>(wanted, 1, most);
  plan.split_k = rounded_up((problem.k + plan.splits - 1) / plan.splits, step);
  plan.splits = (problem.k + plan.split_k - 1) / plan.split_k;
}

/// Value of the wanted splits that means: as many as fill the GPU.
constexpr csp::Integer kFillsGpu = 0;

/// Returns why warpgroups cannot multiply on a GPU; empty if they can.
inline std::string no_warpgroups(const GpuModel& gpu) {
  return has_warpgroups(gpu)
             ? ""
             : fmt::format("their instructions are of sm_90, and {} is of sm_{}", gpu.name, gpu.architecture());
}

/// Returns the cycles of adding up the results of the splits.
inline double added_cycles(const GpuProductPlan& plan, const GpuProductProblem& problem,
                           const GpuCosts::Product& costs) {
  if (plan.splits == 1) return 0;
  const double bytes = 4.0 * static_cast<double>(plan.splits * problem.m) * static_cast<double>(problem.n);
  return costs.pass + bytes / costs.added_bytes;
}

/// Returns the plan with its estimate filled in.
inline GpuProductPlan estimated(GpuProductPlan plan, double cycles, const GpuCosts::Common& costs) {
  plan.cycles = cycles;
  plan.microseconds = costs.launch + cycles / costs.clock;
  plan.why = fmt::format("estimated at {:.0f} thousand cycles", cycles / 1000);
  return plan;
}

}  // namespace penstock::plan
