#pragma once

#include "backend/cuda/dense/dense.h"

/// The kernels that spread the recurrent matrix of one head over a cluster of blocks (plan::DenseAlgorithm::cluster).
namespace penstock::cuda {

/// Returns what the kernels of clusters read beyond the constants of pass_source(); those of the chip read it, too.
std::vector<Constant> cluster_constants(const plan::GpuDenseProblem& problem, const plan::GpuDensePlan& plan);
KernelSource dense_cluster_source(const plan::GpuDenseProblem& problem, const plan::GpuDensePlan& plan);

}  // namespace penstock::cuda
