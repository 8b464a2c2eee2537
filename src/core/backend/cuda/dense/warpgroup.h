#pragma once

#include "backend/cuda/dense/dense.h"
#include "backend/cuda/driver/kernel.h"
#include "plan/gpu/dense.h"

namespace penstock::cuda {

/// The kernel whose blocks of warpgroups multiply a recurrent matrix by the states of many rows at once
/// (plan::DenseAlgorithm::warpgroup).
KernelSource dense_warpgroup_source(const plan::GpuDenseProblem& problem, const plan::GpuDensePlan& plan);

}  // namespace penstock::cuda
