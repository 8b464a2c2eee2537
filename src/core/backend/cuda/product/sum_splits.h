#pragma once

#include "backend/cuda/driver/kernel.h"

/// Adds up what splits of a sum gave.
namespace penstock::cuda {

#include "backend/cuda/kernels/product/sum_splits_arguments.h"

/// Elements of a block, and the threads that share each of them: one where splits are few.
struct SplitBlocks {
  int across, groups;
};
constexpr SplitBlocks split_blocks(Index splits) {
  return splits < 8 ? SplitBlocks{.across = 256, .groups = 1} : SplitBlocks{.across = 64, .groups = 4};
}

KernelSource sum_splits_source(Index splits);

/// `kernel`: of sum_splits_source() of as many splits.
void run_sum_splits(const Kernel& kernel, const SumSplitsArguments& arguments, StreamHandle stream);

}  // namespace penstock::cuda
