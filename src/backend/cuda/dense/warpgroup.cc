#include "backend/cuda/dense/warpgroup.h"

#include "backend/cuda/dense/fill.h"
#include "backend/cuda/product/warpgroup_multiply.h"
#include "plan/cell_table.h"

namespace penstock::cuda {

KernelSource dense_warpgroup_source(const plan::GpuDenseProblem& problem, const plan::GpuDensePlan& plan) {
  const int rows = plan.slots / plan.groups;
  KernelSource source;
  source.entry = problem.backward ? "DenseWarpgroupBackward" : "DenseWarpgroupForward";
  source.file = problem.backward ? "backend/cuda/kernels/dense/warpgroup_backward.cuh"
                                 : "backend/cuda/kernels/dense/warpgroup_forward.cuh";
  source.constants = {{"using Storage", storage_type(problem.storage)},
                      {"constexpr bool kTanhUnit", problem.storage == plan::Storage::bf16},
                      {"constexpr int kHead", problem.head_size()},
                      {"constexpr bool kDescending", problem.reverse},
                      {"constexpr bool kReset", problem.reset},
                      {"constexpr bool kEveryState", problem.every_state},
                      {"constexpr bool kClip", problem.clipped},
                      {"constexpr int kRows", rows},
                      {"constexpr int kPortions", plan.groups},
                      {"constexpr int kResident", plan.resident},
                      {"constexpr int kDepth", plan.depth},
                      {"constexpr int kStages", plan.stages},
                      {"constexpr int kShares", plan.shares},
                      {"constexpr int kKept", plan.kept},
                      {"constexpr int kStreamed", plan.streamed},
                      {"constexpr int kSharedBytes", plan.shared}};
  if (!problem.backward) source.constants.emplace_back("constexpr bool kTraining", problem.training);
  source.functions = warpgroup_multiply_recurrent(rows, problem.storage);
  source.rule = plan::cell_traits(problem.cell).text;
  source.shared_bytes = static_cast<int>(plan.shared);
  source.plan = plan.explain();
  return source;
}

}  // namespace penstock::cuda
