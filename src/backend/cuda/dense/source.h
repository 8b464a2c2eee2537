#pragma once

#include "backend/cuda/dense/cluster.h"
#include "backend/cuda/dense/head.h"

/// The kernel of a plan, and its launch, for every algorithm.
namespace penstock::cuda {

inline KernelSource dense_source(const plan::GpuDenseProblem& problem, const plan::GpuDensePlan& plan) {
  return plan.algorithm == plan::DenseAlgorithm::cluster ? dense_cluster_source(problem, plan)
                                                         : dense_head_source(problem, plan);
}

inline Launch dense_launch(const plan::GpuDensePlan& plan) {
  return {.grid = static_cast<unsigned>(plan.grid),
          .block = static_cast<unsigned>(plan.threads()),
          .cluster = static_cast<unsigned>(plan.cluster)};
}

}  // namespace penstock::cuda
