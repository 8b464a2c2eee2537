#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "plan/gpu/gpu.h"

namespace penstock::plan {

/// D [M, N] = A [M, K] B [K, N] in floats on tensor cores (src/backend/cuda/kernels/product/split_product.cuh).
struct GpuProductProblem {
  Index m = 1, n = 1, k = 1;
  bool a_transposed = false;  ///< A lies in memory as [K, M].
  bool b_transposed = false;  ///< B lies in memory as [N, K].
  bool one_split = false;     ///< K is not to be cut.
  bool operator==(const GpuProductProblem&) const = default;
};

/// A block makes a tile of D; its teams share the tile, each with `tiles_m` x `tiles_n` tiles of 16 x 8 sums. Where D
/// has fewer tiles than the GPU room for blocks, K is cut into splits, whose results are added up by a launch of their
/// own. A team is a warp; or, by Hopper's own instructions, a warpgroup, and then either a block holds all it needs of
/// B and goes on from rows to rows, or one more warpgroup brings B.
struct GpuProductPlan {
  static constexpr int rows = 16, columns = 8, step = 32;  // of a tile of sums, and of K at once
  bool warpgroups = false;
  int teams_m = 1, teams_n = 1;      ///< Of a block, over M and N.
  int tiles_m = 2, tiles_n = 1;      ///< Of a team.
  int depth = 2;                     ///< Steps of K whose factors a block holds or awaits.
  int blocks = 1;                    ///< Of one multiprocessor.
  int ahead = 1;                     ///< Warpgroups: steps for which factors of A are under way.
  Index most_m = 0;                  ///< Warpgroups: blocks over M, at most, of which each goes on to further rows.
  Index shared = 0;                  ///< Bytes of shared memory of a block.
  Index splits = 1, split_k = step;  ///< Of K: how many, and their length.
  double cycles = 0;                 ///< As estimated, of the whole product; a launch comes to it.
  double microseconds = 0;           ///< The same, with the launch.
  std::string why;

  int threads() const { return warpgroups ? 128 * (teams_m * teams_n + (resident() ? 0 : 1)) : 32 * teams_m * teams_n; }
  int tile_m() const { return teams_m * tiles_m * rows; }
  int tile_n() const { return teams_n * tiles_n * columns; }
  /// All steps of a split are in shared memory at once.
  bool resident() const { return warpgroups && split_k <= Index{depth} * step; }
  Index grid_m(Index m) const { return (m + tile_m() - 1) / tile_m(); }
  Index blocks_m(Index m) const { return warpgroups ? std::min(most_m, grid_m(m)) : grid_m(m); }
  Index grid_n(Index n) const { return (n + tile_n() - 1) / tile_n(); }
  std::string explain() const;
  bool operator==(const GpuProductPlan&) const = default;
};

/// Whether products can be made by warpgroups: their instructions are of one generation of chips.
inline bool has_warpgroups(const GpuModel& gpu) { return gpu.architecture() == 90; }

/// Throws Error(invalid_argument) for sizes below one or beyond what one launch can number.
GpuProductPlan plan_gpu_product(const GpuProductProblem& problem, const GpuModel& gpu);

/// Plans, one for each shape of a block, from the one that is estimated best: for measurements.
std::vector<GpuProductPlan> product_plans(const GpuProductProblem& problem, const GpuModel& gpu);

}  // namespace penstock::plan
