#include "backend/cuda/dense/warpgroup.h"

#include "backend/cuda/dense/fill.h"
#include "backend/cuda/product/warpgroup_multiply.h"
#include "plan/cell_table.h"

namespace penstock::cuda {

KernelSource dense_warpgroup_source(const plan::GpuDenseProblem& problem, const plan::GpuDensePlan& plan) {
  const int rows = plan.slots / plan.groups;
  KernelSource source = pass_source(problem, plan, "warpgroup",
                                    {{"constexpr int kHead", problem.head_size()},
                                     {"constexpr int kAccess", problem.alignment},
                                     {"constexpr int kRows", rows},
                                     {"constexpr bool kEveryState", problem.every_state},
                                     {"constexpr int kPortions", plan.groups},
                                     {"constexpr int kResident", plan.resident},
                                     {"constexpr int kDepth", plan.depth},
                                     {"constexpr int kStages", plan.stages},
                                     {"constexpr int kShares", plan.shares},
                                     {"constexpr int kKept", plan.kept},
                                     {"constexpr int kStreamed", plan.streamed},
                                     {"constexpr int kSharedBytes", plan.shared}});
  if (!problem.backward) source.constants.emplace_back("constexpr bool kTraining", problem.training);
  source.functions =
      warpgroup_multiply_recurrent(rows, problem.storage == plan::Storage::f32 ? plan::Storage::f16 : problem.storage);
  return source;
}

}  // namespace penstock::cuda
