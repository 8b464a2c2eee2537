#include "backend/cuda/dense/cluster.h"

namespace penstock::cuda {

std::vector<Constant> cluster_constants(const plan::GpuDenseProblem& problem, const plan::GpuDensePlan& plan) {
  return {{"constexpr int kHead", problem.head_size()},
          {"constexpr int kAccess", problem.alignment},
          {"constexpr int kCluster", plan.cluster},
          {"constexpr int kBlocks", plan.octets},
          {"constexpr int kRows", plan.slots},
          {"constexpr int kGroups", plan.groups},
          {"constexpr int kParts", plan.parts},
          {"constexpr int kResident", plan.resident},
          {"constexpr int kStages", plan.stages},
          {"constexpr bool kTraining", problem.training},
          {"constexpr bool kEveryState", problem.every_state},
          {"constexpr int kSharedBytes", plan.shared},
          {"constexpr int kLeftOut", plan.left_out}};
}

KernelSource dense_cluster_source(const plan::GpuDenseProblem& problem, const plan::GpuDensePlan& plan) {
  return pass_source(problem, plan, "cluster", cluster_constants(problem, plan));
}

}  // namespace penstock::cuda
