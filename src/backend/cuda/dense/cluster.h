#pragma once

#include "backend/cuda/dense/dense.h"

/// The kernels that spread the recurrent matrix of one head over a cluster of blocks (plan::DenseAlgorithm::cluster).
namespace penstock::cuda {

KernelSource dense_cluster_source(const plan::GpuDenseProblem& problem, const plan::GpuDensePlan& plan);

}  // namespace penstock::cuda
