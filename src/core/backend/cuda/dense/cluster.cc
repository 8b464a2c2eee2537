#include "backend/cuda/dense/cluster.h"

namespace penstock::cuda {

Constant cluster_pass(const plan::GpuDenseProblem& problem, const plan::GpuDensePlan& plan) {
  const given::ClusterPass pass = {.all = dense_pass(problem),
                                   .held = held_matrix(problem, plan),
                                   .cluster = plan.cluster,
                                   .blocks = plan.octets,
                                   .rows = plan.slots,
                                   .groups = plan.groups,
                                   .parts = plan.parts,
                                   .resident = plan.resident,
                                   .stages = plan.stages,
                                   .left_out = plan.left_out,
                                   .clusters = plan.clusters,
                                   .direct = plan.direct};
  return pass_constant("ClusterPass", pass);
}

KernelSource dense_cluster_source(const plan::GpuDenseProblem& problem, const plan::GpuDensePlan& plan) {
  return pass_source(problem, plan, "cluster", cluster_pass(problem, plan));
}

}  // namespace penstock::cuda
