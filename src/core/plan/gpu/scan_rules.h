#pragma once

#include <bit>

#include "plan/gpu/scan.h"
#include "plan/rule.h"

namespace penstock::plan {

using ScanAlgorithmRule = Rule<GpuScanPlan>;

// Rules for recurrences of scan cells and for plain scans on a GPU, one file each.
ScanAlgorithmRule direct_scan_rule(const GpuScanProblem& problem, const GpuModel& gpu);
ScanAlgorithmRule chunked_scan_rule(const GpuScanProblem& problem, const GpuModel& gpu);

/// Returns both rules, without regard to expected speed.
std::vector<ScanAlgorithmRule> scan_rules(const GpuScanProblem& problem, const GpuModel& gpu);

/// Largest number of tiles of one launch.
constexpr Index kMaxScanTiles = Index{0x7fffffff};

/// Returns the bytes of shared memory of a block of ScanAlgorithm::scan.
Index scan_shared_bytes(const GpuScanPlan& plan, const GpuScanProblem& problem);

/// Adds the variable "vector", the channels of one memory access. Accesses must cover each row exactly.
inline csp::Expression access_variable(ScanAlgorithmRule& rule, const GpuScanProblem& problem, int widest_bytes) {
  const int size = size_of(problem.storage);
  const auto vector = rule.var("vector", csp::powers_of_two(1, std::max(1, widest_bytes / size)));
  rule.model.require("addresses and strides are multiples of an access",
                     csp::Expression(problem.alignment) % (vector * size) == 0);
  rule.model.require("accesses divide the channels", csp::Expression(problem.channels) % vector == 0);
  return vector;
}

/// Sets lanes and groups: lanes without a channel become further groups.
inline void share_threads(GpuScanPlan& plan, const GpuScanProblem& problem, int threads) {
  const auto needed = static_cast<std::uint64_t>((problem.channels + plan.vector - 1) / plan.vector);
  plan.lanes = static_cast<int>(std::min<std::uint64_t>(32, std::bit_ceil(needed)));
  plan.groups = threads / plan.lanes;
}

}  // namespace penstock::plan
