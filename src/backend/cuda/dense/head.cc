#include "backend/cuda/dense/head.h"

#include <algorithm>

namespace penstock::cuda {

KernelSource dense_head_source(const plan::GpuDenseProblem& problem, const plan::GpuDensePlan& plan) {
  KernelSource source;
  source.entry = problem.backward ? "DenseHeadBackward" : "DenseHeadForward";
  source.file =
      problem.backward ? "backend/cuda/kernels/dense/head_backward.cuh" : "backend/cuda/kernels/dense/head_forward.cuh";
  source.constants = {{"using Storage", storage_type(problem.storage)},
                      {"constexpr bool kTanhUnit", problem.storage == plan::Storage::bf16},
                      {"constexpr int kHead", problem.head_size()},
                      {"constexpr int kSlots", plan.slots},
                      {"constexpr int kResident", plan.resident},
                      {"constexpr int kStages", plan.stages},
                      {"constexpr int kBlocks", plan.blocks},
                      {"constexpr int kAccess", problem.alignment},
                      {"constexpr bool kDescending", problem.reverse},
                      {"constexpr bool kRagged", problem.ragged},
                      {"constexpr bool kReset", problem.reset},
                      {"constexpr bool kTraining", problem.training},
                      {"constexpr bool kEveryState", problem.every_state},
                      {"constexpr bool kClip", problem.clipped},
                      {"constexpr bool kMeans", plan::cell_traits(problem.cell).averages},
                      {"constexpr int kSharedBytes", plan.shared}};
  source.rule = plan::cell_traits(problem.cell).text;
  source.shared_bytes = static_cast<int>(plan.shared);
  source.plan = plan.explain();
  return source;
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
