#include "backend/cuda/dense/runnable.h"

#include <bit>

#include "backend/cuda/dense/source.h"
#include "base/check.h"

namespace penstock::cuda {
namespace {

/// Clusters of the plan that the GPU runs at once.
Index clusters_held(Device& device, const Kernel& kernel, const plan::GpuDensePlan& plan) {
  const Index held = kernel.resident(dense_launch(plan));
  return plan.cluster > 1 ? held : held * device.model().multiprocessors;
}

/// Clusters that must run at once, since their blocks wait for each other; 0: none do.
Index clusters_needed(const plan::GpuDensePlan& plan) {
  if (takes_the_chip(plan)) return plan.grid / plan.cluster;
  return plan.algorithm == plan::DenseAlgorithm::cluster ? 1 : 0;
}

/// `refused`: what became of better plans, in clauses that begin with a semicolon.
plan::GpuDensePlan next_plan(const plan::GpuDenseProblem& problem, const plan::GpuModel& model,
                             const std::string& refused) {
  try {
    plan::GpuDensePlan plan = plan_gpu_dense(problem, model);
    plan.why += refused;
    return plan;
  } catch (const Error& error) {
    if (refused.empty()) throw;
    fail(error.code(), "{}{}", error.what(), refused);
  }
}

}  // namespace

plan::GpuDensePlan runnable_plan(Device& device, const plan::GpuDenseProblem& problem) {
  plan::GpuModel model = device.model();
  std::string refused;
  while (true) {
    plan::GpuDensePlan plan = next_plan(problem, model, refused);
    if (plan.cluster == 1 || problem.cluster != 0) return plan;
    const Index held = clusters_held(device, Kernel::load(device, dense_source(problem, plan)), plan);
    if (held >= clusters_needed(plan)) return plan;
    // The number of clusters follows the rows, so another shape would follow them, too.
    if (problem.exact && takes_the_chip(plan)) {
      fail(ErrorCode::unsupported,
           "exact mode has one plan for any number of rows; {} rows need {} clusters at once, and {} runs {}: use "
           "fewer rows a call",
           problem.rows, clusters_needed(plan), model.name, held);
    }
    refused += fmt::format("; {} runs only {} clusters of {} blocks at once", model.name, held, plan.cluster);
    // The next plan is one for what was found here, so that the search ends.
    if (takes_the_chip(plan)) {
      model.clusters_found[static_cast<std::size_t>(std::countr_zero(static_cast<unsigned>(plan.cluster)))] = held;
    } else {
      model.cluster = plan.cluster / 2;
    }
  }
}

void require_clusters(Device& device, const Kernel& kernel, const plan::GpuDensePlan& plan) {
  const Index needed = clusters_needed(plan);
  if (needed == 0) return;
  const Index held = clusters_held(device, kernel, plan);
  if (held >= needed) return;
  fail(ErrorCode::unsupported, "{} runs {} clusters of {} blocks of the recurrence at once, not the {} of its plan",
       device.model().name, held, plan.cluster, needed);
}

}  // namespace penstock::cuda
