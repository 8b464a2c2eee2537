#pragma once

#include "backend/cuda/dense/dense.h"

/// The kernels whose block holds the recurrent matrix of one head (plan::DenseAlgorithm::head).
namespace penstock::cuda {

KernelSource dense_head_source(const plan::GpuDenseProblem& problem, const plan::GpuDensePlan& plan);
/// The kernel that orders rows, and the number of its threads.
KernelSource sort_rows_source();
constexpr int kSortThreads = 128, kEnteringThreads = 256;
KernelSource entering_states_source(plan::Storage storage, bool reverse, int vector);

/// Returns the kernel for the gradients of the recurrent matrices of `gates` of the cell's gates.
KernelSource head_gradient_source(const DenseSpec& spec, Index gates, int alignment);

}  // namespace penstock::cuda
