#pragma once

#include "backend/cuda/dense/dense.h"
#include "backend/cuda/driver/kernel.h"

/// Limits of the driver on the clusters of blocks that a plan asks for.
namespace penstock::cuda {

/// The plan of a problem. Where the driver does not run its clusters at once and their size was left open, the next one
/// that it does run.
plan::GpuDensePlan runnable_plan(Device& device, const plan::GpuDenseProblem& problem);
/// Throws Error(unsupported) if the GPU does not run the clusters of a plan.
void require_clusters(Device& device, const Kernel& kernel, const plan::GpuDensePlan& plan);

}  // namespace penstock::cuda
