#include "backend/cuda/dense/cluster.h"

namespace penstock::cuda {

KernelSource dense_cluster_source(const plan::GpuDenseProblem& problem, const plan::GpuDensePlan& plan) {
  KernelSource source;
  source.entry = problem.backward ? "DenseClusterBackward" : "DenseClusterForward";
  source.file = problem.backward ? "backend/cuda/kernels/dense/cluster_backward.cuh"
                                 : "backend/cuda/kernels/dense/cluster_forward.cuh";
  source.constants = {{"using Storage", storage_type(problem.storage)},
                      {"constexpr bool kTanhUnit", problem.storage == plan::Storage::bf16},
                      {"constexpr int kHead", problem.head_size()},
                      {"constexpr int kAccess", problem.alignment},
                      {"constexpr bool kDescending", problem.reverse},
                      {"constexpr bool kReset", problem.reset},
                      {"constexpr int kCluster", plan.cluster},
                      {"constexpr int kBlocks", plan.octets},
                      {"constexpr int kRows", plan.slots},
                      {"constexpr int kGroups", plan.groups},
                      {"constexpr int kParts", plan.parts},
                      {"constexpr int kResident", plan.resident},
                      {"constexpr int kStages", plan.stages},
                      {"constexpr bool kTraining", problem.training},
                      {"constexpr bool kEveryState", problem.every_state},
                      {"constexpr bool kClip", problem.clipped},
                      {"constexpr int kSharedBytes", plan.shared},
                      {"constexpr int kLeftOut", plan.left_out}};
  source.rule = plan::cell_traits(problem.cell).text;
  source.shared_bytes = static_cast<int>(plan.shared);
  source.plan = plan.explain();
  return source;
}

}  // namespace penstock::cuda
