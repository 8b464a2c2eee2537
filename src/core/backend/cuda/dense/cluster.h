#pragma once

#include "backend/cuda/dense/dense.h"

/// The kernels that spread the recurrent matrix of one head over a cluster of blocks (plan::DenseAlgorithm::cluster).
namespace penstock::cuda {

/// Returns what the kernels of clusters are told, and those of the chip.
Constant cluster_pass(const plan::GpuDenseProblem& problem, const plan::GpuDensePlan& plan);
KernelSource dense_cluster_source(const plan::GpuDenseProblem& problem, const plan::GpuDensePlan& plan);

}  // namespace penstock::cuda
