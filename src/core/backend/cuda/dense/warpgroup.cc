#include "backend/cuda/dense/warpgroup.h"

#include "backend/cuda/product/warpgroup_multiply.h"

namespace penstock::cuda {

KernelSource dense_warpgroup_source(const plan::GpuDenseProblem& problem, const plan::GpuDensePlan& plan) {
  const given::WarpgroupPass pass = {.all = dense_pass(problem),
                                     .held = held_matrix(problem, plan),
                                     .rows = plan.slots / plan.groups,
                                     .portions = plan.groups,
                                     .resident = plan.resident,
                                     .depth = plan.depth,
                                     .stages = plan.stages,
                                     .shares = plan.shares,
                                     .kept = plan.kept,
                                     .streamed = plan.streamed,
                                     .terms = problem.factor_terms()};
  KernelSource source = pass_source(problem, plan, "warpgroup", pass_constant("WarpgroupPass", pass));
  source.functions = warpgroup_multiply_recurrent(
      pass.rows, problem.storage == plan::Storage::f32 ? plan::Storage::f16 : problem.storage);
  return source;
}

}  // namespace penstock::cuda
