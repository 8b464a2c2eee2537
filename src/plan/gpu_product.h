#pragma once

#include <string>
#include <vector>

#include "plan/gpu.h"

namespace penstock::plan {

/// D [M, N] = A [M, K] B [K, N] in floats on tensor cores (src/backend/cuda/kernels/split_product.cuh).
struct GpuProductProblem {
  Index m = 1, n = 1, k = 1;
  bool a_transposed = false;  ///< A lies in memory as [K, M].
  bool b_transposed = false;  ///< B lies in memory as [N, K].
  bool one_slab = false;      ///< K is not to be cut.
  bool operator==(const GpuProductProblem&) const = default;
};

/// A block makes a tile of D; its warps share the tile, each with 2 x `tiles_n` tiles of 16 x 8 sums. Where D has fewer
/// tiles than the GPU room for blocks, K is cut into slabs, whose results are added up by a launch of their own.
struct GpuProductPlan {
  static constexpr int rows = 16, columns = 8, step = 32;  // of a tile of sums, and of K at once
  int warps_m = 1, warps_n = 1;                            ///< Of a block, over M and N.
  int tiles_m = 2, tiles_n = 1;                            ///< Of a warp.
  int depth = 2;                                           ///< Steps of K whose factors a block holds or awaits.
  int blocks = 1;                                          ///< Of one multiprocessor.
  Index shared = 0;                                        ///< Bytes of shared memory of a block.
  Index slabs = 1, slab = step;                            ///< Of K: how many, and their length.
  std::string why;

  int threads() const { return 32 * warps_m * warps_n; }
  int tile_m() const { return warps_m * tiles_m * rows; }
  int tile_n() const { return warps_n * tiles_n * columns; }
  Index grid_m(Index m) const { return (m + tile_m() - 1) / tile_m(); }
  Index grid_n(Index n) const { return (n + tile_n() - 1) / tile_n(); }
  std::string explain() const;
  bool operator==(const GpuProductPlan&) const = default;
};

/// Throws Error(invalid_argument) for sizes below one or beyond what one launch can number.
GpuProductPlan plan_gpu_product(const GpuProductProblem& problem, const GpuModel& gpu);

/// Plans, one for each shape of a block, from the one that is estimated best: for measurements.
std::vector<GpuProductPlan> product_plans(const GpuProductProblem& problem, const GpuModel& gpu);

}  // namespace penstock::plan
