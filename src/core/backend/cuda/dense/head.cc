#include "backend/cuda/dense/head.h"

#include <algorithm>

namespace penstock::cuda {

KernelSource dense_head_source(const plan::GpuDenseProblem& problem, const plan::GpuDensePlan& plan) {
  return pass_source(problem, plan, "head",
                     {{"constexpr int kHead", problem.head_size()},
                      {"constexpr int kSlots", plan.slots},
                      {"constexpr int kResident", plan.resident},
                      {"constexpr int kStages", plan.stages},
                      {"constexpr int kBlocks", plan.blocks},
                      {"constexpr int kAccess", problem.alignment},
                      {"constexpr bool kRagged", problem.ragged},
                      {"constexpr bool kTraining", problem.training},
                      {"constexpr bool kEveryState", problem.every_state},
                      {"constexpr bool kMeans", plan::cell_traits(problem.cell).averages},
                      {"constexpr int kSharedBytes", plan.shared}});
}

KernelSource sort_rows_source() {
  KernelSource source;
  source.entry = "SortRows";
  source.file = "backend/cuda/kernels/dense/sort_rows.cuh";
  source.constants = {{"constexpr int kThreads", kSortThreads}};
  source.plan = "rows by falling length";
  return source;
}

KernelSource entering_states_source(plan::Storage storage, bool reverse, int vector) {
  KernelSource source;
  source.entry = "EnteringStates";
  source.file = "backend/cuda/kernels/dense/entering.cuh";
  source.constants = {{"using Storage", storage_type(storage)},
                      {"constexpr bool kDescending", reverse},
                      {"constexpr int kVector", vector},
                      {"constexpr int kThreads", kEnteringThreads}};
  source.plan = "outputs of the steps before, as a matrix";
  return source;
}

}  // namespace penstock::cuda
