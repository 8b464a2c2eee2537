#pragma once

#include "backend/cuda/dense/chip.h"
#include "backend/cuda/dense/cluster.h"
#include "backend/cuda/dense/diagonal.h"
#include "backend/cuda/dense/head.h"
#include "backend/cuda/dense/steps.h"
#include "backend/cuda/dense/warpgroup.h"

/// The kernel of a plan, and its launch, for every algorithm.
namespace penstock::cuda {

inline KernelSource dense_source(const plan::GpuDenseProblem& problem, const plan::GpuDensePlan& plan) {
  switch (plan.algorithm) {
    case plan::DenseAlgorithm::cluster:
      return dense_cluster_source(problem, plan);
    case plan::DenseAlgorithm::chip:
      return dense_chip_source(problem, plan);
    case plan::DenseAlgorithm::warpgroup:
      return dense_warpgroup_source(problem, plan);
    case plan::DenseAlgorithm::step:
      return dense_step_source(problem, plan);
    case plan::DenseAlgorithm::diagonal:
      return dense_diagonal_source(problem, plan);
    default:
      return dense_head_source(problem, plan);
  }
}

inline Launch dense_launch(const plan::GpuDensePlan& plan) {
  return {.grid = static_cast<unsigned>(plan.grid),
          .block = static_cast<unsigned>(plan.threads()),
          .cluster = static_cast<unsigned>(plan.cluster),
          .cooperative = plan::takes_the_chip(plan)};
}

}  // namespace penstock::cuda
