#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "plan/gpu/scan.h"

namespace penstock::plan {

/// D [M, N] = A [M, K] B [K, N] in float32 on tensor cores: products of three parts in tf32
/// (src/core/backend/cuda/kernels/product/split_product.cuh), or of pairs of float16 (float_pairs.cuh).
struct GpuProductProblem {
  Index m = 1, n = 1, k = 1;
  bool a_transposed = false;  ///< A is [K, M] in memory.
  bool b_transposed = false;  ///< B is [N, K] in memory.
  bool one_split = false;     ///< K must not be split.
  bool exact = false;         ///< A row's bits must not depend on other rows.
  bool operator==(const GpuProductProblem&) const = default;
};

/// A plan for a product. A block computes a tile of D. Its teams share the tile; each has `tiles_m` x `tiles_n` tiles
/// of 16 x 8 sums. If D has fewer tiles than the GPU has room for blocks, K is split, and a second launch adds up the
/// results. A team is a warp or, with Hopper's instructions, a warpgroup. With warpgroups, either a block holds all of
/// its part of B and continues with further rows, or an additional warpgroup loads B.
struct GpuProductPlan {
  static constexpr int rows = 16, columns = 8, step = 32;  // rows and columns of a tile of sums, and a step of K
  bool warpgroups = false;
  bool pairs = false;            ///< Warpgroups that multiply pairs of float16, made before the product.
  int teams_m = 1, teams_n = 1;  ///< Teams of a block along M and N.
  int tiles_m = 2, tiles_n = 1;  ///< Tiles of a team along M and N.
  int depth = 2;                 ///< Steps of K that a block holds or waits for; with pairs, half steps of 64.
  int blocks = 1;                ///< Blocks per multiprocessor.
  int ahead = 1;                 ///< Warpgroups: steps of A that are loaded ahead.
  Index most_m = 0;              ///< Warpgroups: maximum number of blocks along M; each continues with further rows.
  Index shared = 0;              ///< Bytes of shared memory of a block.
  Index splits = 1, split_k = step;  ///< Number of splits of K, and their length.
  double cycles = 0;                 ///< Estimated cycles of the whole product without its launch.
  double microseconds = 0;           ///< Estimated time including the launch.
  std::string why;

  int threads() const { return warpgroups ? 128 * (teams_m * teams_n + (resident() ? 0 : 1)) : 32 * teams_m * teams_n; }
  int tile_m() const { return teams_m * tiles_m * rows; }
  int tile_n() const { return teams_n * tiles_n * columns; }
  /// Returns whether all steps of a split are in shared memory at the same time.
  bool resident() const { return warpgroups && !pairs && split_k <= Index{depth} * step; }
  Index grid_m(Index m) const { return (m + tile_m() - 1) / tile_m(); }
  Index blocks_m(Index m) const { return warpgroups ? std::min(most_m, grid_m(m)) : grid_m(m); }
  Index grid_n(Index n) const { return (n + tile_n() - 1) / tile_n(); }
  std::string explain() const;
  bool operator==(const GpuProductPlan&) const = default;
};

/// Returns whether products can run on warpgroups, whose instructions only one generation of chips has.
inline bool has_warpgroups(const GpuModel& gpu) { return gpu.architecture() == 90; }

/// Returns the plan for a product. Throws Error(invalid_argument) for sizes below one or too large for one launch.
GpuProductPlan plan_gpu_product(const GpuProductProblem& problem, const GpuModel& gpu);

/// Returns the best plan by warpgroups without pairs, for chips that have them: with it, products of pairs are made
/// again if too many of their floats do not fit.
GpuProductPlan plan_product_without_pairs(const GpuProductProblem& problem, const GpuModel& gpu);

/// Returns plans for measurements, one for each shape of a block, the best estimate first.
std::vector<GpuProductPlan> product_plans(const GpuProductProblem& problem, const GpuModel& gpu);

}  // namespace penstock::plan
