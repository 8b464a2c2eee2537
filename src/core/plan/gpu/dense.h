#pragma once

#include <string>
#include <vector>

#include "plan/cell_table.h"
#include "plan/gpu/scan.h"

namespace penstock::plan {

/// How the recurrence of a dense cell runs on a GPU.
enum class DenseAlgorithm {
  automatic,  ///< The planner chooses.
  head,       ///< A block holds the recurrent matrix of a head and runs all steps of a slice of the rows.
  cluster,    ///< A cluster of blocks shares a recurrent matrix and exchanges the state at each step.
  chip,       ///< Many clusters, up to the whole chip, share a matrix and exchange the state through the L2 cache.
  warpgroup,  ///< Blocks of warpgroups share a matrix and multiply it by the states of many rows at once.
  step,       ///< Each step is a matrix product and a launch that applies the cell.
  diagonal,   ///< Every unit is a head: a thread runs one unit of a row, or a piece of its steps.
};

std::string_view to_string(DenseAlgorithm algorithm);
/// Returns all algorithms except automatic, preferred ones first.
std::vector<DenseAlgorithm> dense_algorithms();

/// One recurrence of a dense cell over [B, T, H] on a GPU. The input product is given.
struct GpuDenseProblem {
  std::string cell = "lstm";
  Storage storage = Storage::bf16;
  Index rows = 1;    // B
  Index steps = 1;   // T
  Index hidden = 1;  // H
  Index heads = 1;
  bool backward = false;
  bool training = false;  ///< Forward: a tape is written for the backward pass.
  bool ragged = false;    ///< Rows have different lengths.
  bool sorted = false;    ///< Rows are sorted by decreasing length, and the host knows the number of rows of each step.
  bool reset = false;
  bool restarts = false;     ///< Resets start again at states of the call, not at zeros.
  bool every_state = false;  ///< Forward: all states except h are written at each step; backward: they have gradients.
  bool clipped = false;      ///< Backward: the gradient from step to step is limited.
  bool reverse = false;
  bool exact = false;  ///< Forward: what decides on the order of sums is the same for any rows and steps.
  bool tf32 = false;   ///< f32: products may round their factors to 10 bits of mantissa.
  int alignment =
      16;  ///< Largest power of two, up to 16 bytes, that divides all addresses, strides and heads in bytes.
  DenseAlgorithm algorithm = DenseAlgorithm::automatic;
  // Requested values of a plan. 0: the planner chooses.
  int slots = 0;    ///< DenseAlgorithm::head: rows of a block, 8, 4 or 2. DenseAlgorithm::chip: rows of a team.
  int cluster = 0;  ///< DenseAlgorithm::chip: blocks of a cluster, 8, 4, 2 or 1.
  int groups = 0, parts = 0;  ///< DenseAlgorithm::chip: of warps. DenseAlgorithm::diagonal: `parts` is the pieces.
                              ///< DenseAlgorithm::warpgroup: `groups` is the portions.
  int shares = -1;            ///< DenseAlgorithm::warpgroup: as GpuDensePlan::shares. -1: the planner chooses.
  int direct = -1;            ///< DenseAlgorithm::chip: 1 or 0, as GpuDensePlan::direct. -1: the planner chooses.

  Index head_size() const { return hidden / heads; }
  /// Returns the number of 16-bit terms whose sum is a factor of a product, for DenseAlgorithm::warpgroup.
  int factor_terms() const { return storage == Storage::f32 && (backward || !tf32) ? 2 : 1; }
  bool operator==(const GpuDenseProblem&) const = default;
};

/// A plan for the recurrence of a dense cell.
///
/// DenseAlgorithm::head: a block with one warp per 16 units computes `slots` rows of one head.
/// DenseAlgorithm::cluster: the blocks of a cluster share the units of a head and compute `slots` rows.
/// DenseAlgorithm::chip: the blocks of `clusters` clusters share the units of a head and compute `slots` rows.
/// DenseAlgorithm::warpgroup: `clusters` blocks share the units of a head. Their rows are `groups` portions in turn.
/// DenseAlgorithm::step: each thread of a launch computes one unit of one row.
/// DenseAlgorithm::diagonal: each thread computes one piece of the steps of one unit of one row.
struct GpuDensePlan {
  DenseAlgorithm algorithm = DenseAlgorithm::head;
  int slots = 8;        ///< Rows of a block: 8, or 4 or 2 if the GPU has room for more blocks. Of a cluster: up to 16.
  int warps = 1;        ///< Warps of a block.
  int resident = 0;     ///< Chunks of the summed axis in registers; the others are in shared memory.
  int chunks = 0;       ///< All chunks of the summed axis, of 64 bytes. Cluster: of 32 bytes, and of one warp's part.
  int blocks = 1;       ///< Blocks per multiprocessor.
  int stages = 4;       ///< Steps of the inputs that a block holds or waits for.
  Index shared = 0;     ///< Bytes of shared memory of a block.
  Index slices = 1;     ///< Slices of the rows.
  Index grid = 1;       ///< Blocks of the launch.
  int cluster = 1;      ///< Blocks of a cluster.
  int clusters = 1;     ///< Chip: clusters that share the units of a head, a *team*.
  Index teams = 1;      ///< Chip: teams of one launch; more teams take turns.
  bool direct = false;  ///< Chip: exchanged values go directly to registers, not through shared memory.
  Index exchange = 0;   ///< Chip: bytes of memory through which the teams of a launch exchange the state.
  int octets = 0;       ///< Cluster, chip: groups of eight units per block.
  int depth = 1;        ///< Warpgroup: chunks of 64 units that are loaded at once.
  int shares = 0;  ///< Warpgroup: blocks that share the sums of 128 rows of the matrix; 0: a block has 64 rows alone.
  int kept = 0, streamed = 0;  ///< Warpgroup: loads with R in shared memory, and those whose R is read at every step.
  int groups = 1;    ///< Cluster, chip: groups of warps that share these units; chip: in all blocks of the cluster.
  int parts = 1;     ///< Cluster, chip: warps of a group, which share the sums over h.
  Index pieces = 1;  ///< Diagonal: pieces of the steps, computed in parallel. 1: T is not split.
  int left_out = 0;  ///< Cluster, for measurements: omits the exchange (1), products (2) or cell (3) of each step.
  double microseconds = 0;  ///< Estimated time; 0: not estimated.
  std::string why;

  int threads() const { return 32 * warps; }
  std::string explain() const;
  bool operator==(const GpuDensePlan&) const = default;
};

/// Returns whether all blocks of a launch run at the same time and wait for each other.
bool takes_the_chip(const GpuDensePlan& plan);

/// DenseAlgorithm::diagonal: most iterations over all pieces by Newton's iteration. Chains that have not joined then
/// are run as a whole. Trained cells join at the second or third iteration, and an iteration over chains that have
/// joined ends at once.
inline constexpr int diagonal_iterations = 5;

/// DenseAlgorithm::diagonal: returns the number of pieces that the thread which joins them reads ahead.
int diagonal_batch(Index states);

/// Returns the number of clusters of this size that run at once, with each block on its own multiprocessor.
Index clusters_at_once(const GpuModel& gpu, int cluster);

/// Returns the floats of the tape that the means of a cell take at a step, for each row and head.
int taped_floats(const CellTraits& cell);

/// Returns numbers of rows up to `most` that split a batch into slices as evenly as possible, largest first.
std::vector<int> even_row_counts(Index rows, int most);

/// Returns the plan for a recurrence. Throws Error: invalid_argument for an impossible problem, unsupported for an
/// algorithm or a size that does not fit this GPU.
GpuDensePlan plan_gpu_dense(const GpuDenseProblem& problem, const GpuModel& gpu);

}  // namespace penstock::plan
