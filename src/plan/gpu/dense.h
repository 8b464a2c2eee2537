#pragma once

#include <string>
#include <vector>

#include "plan/gpu/gpu.h"

namespace penstock::plan {

/// How the recurrence of a dense cell runs on a GPU.
enum class DenseAlgorithm {
  automatic,  ///< The planner chooses.
  head,       ///< A block holds a head's recurrent matrix and walks over all steps of a slice of the rows.
  cluster,    ///< A cluster of blocks shares a recurrent matrix and exchanges the state each step.
  chip,  ///< Many clusters, up to the whole chip, share one, and exchange the state through the second-level cache.
  warpgroup,  ///< Blocks of warpgroups share one, and multiply it by the states of many rows at once.
  step,       ///< Each step is a matrix product and a launch that applies the cell.
  diagonal,   ///< Every unit is a head: a thread walks a unit of a row, or a piece of its steps.
};

std::string_view to_string(DenseAlgorithm algorithm);
/// All but automatic, the preferred ones first.
std::vector<DenseAlgorithm> dense_algorithms();

/// One recurrence of a dense cell over [B, T, H] on a GPU, the product of the input given.
struct GpuDenseProblem {
  std::string cell = "lstm";
  Storage storage = Storage::bf16;
  Index rows = 1;    // B
  Index steps = 1;   // T
  Index hidden = 1;  // H
  Index heads = 1;
  bool backward = false;
  bool training = false;  ///< Forward: what the backward pass needs is kept.
  bool ragged = false;    ///< Rows have lengths of their own.
  bool falling = false;   ///< None longer than the one before, and the host knows how many rows have each step.
  bool reset = false;
  bool every_state = false;  ///< Forward: the states but h are written each step; backward: those have gradients.
  bool clipped = false;      ///< Backward: the gradient that passes from step to step has a limit.
  bool reverse = false;
  int alignment = 16;  ///< Greatest power of two, up to 16 bytes, that divides every address, stride and head in bytes.
  DenseAlgorithm algorithm = DenseAlgorithm::automatic;
  // What is asked of a plan; 0: the planner chooses.
  int slots = 0;              ///< Rows of a block of DenseAlgorithm::head: 8, 4, 2; of a team of DenseAlgorithm::chip.
  int cluster = 0;            ///< DenseAlgorithm::chip: blocks of a cluster: 8, 4, 2, 1.
  int groups = 0, parts = 0;  ///< DenseAlgorithm::chip: of warps. `parts` of DenseAlgorithm::diagonal: pieces.
  int direct = -1;            ///< DenseAlgorithm::chip: 1 or 0, as GpuDensePlan::direct; -1: the planner chooses.

  Index head_size() const { return hidden / heads; }
  bool operator==(const GpuDenseProblem&) const = default;
};

/// DenseAlgorithm::head: a block of one warp for every 16 units takes `slots` rows of one head.
/// DenseAlgorithm::cluster: the blocks of a cluster share the units of a head, and take `slots` rows.
/// DenseAlgorithm::chip: so do the blocks of `clusters` clusters.
/// DenseAlgorithm::warpgroup: so do `clusters` blocks, whose rows are `groups` portions that take turns.
/// DenseAlgorithm::step: each thread of a launch takes one unit of one row.
/// DenseAlgorithm::diagonal: each thread takes one piece of the steps of one unit of one row.
struct GpuDensePlan {
  DenseAlgorithm algorithm = DenseAlgorithm::head;
  int slots = 8;     ///< Rows of a block: 8, or 4 or 2, where the GPU has room for more blocks. Of a cluster: up to 16.
  int warps = 1;     ///< Of a block.
  int resident = 0;  ///< Chunks of the summed axis that lie in registers; the others in shared memory.
  int chunks = 0;    ///< All of them: of 64 bytes; of a cluster of 32, and of a warp's part.
  int blocks = 1;    ///< Of one multiprocessor.
  int stages = 4;    ///< Steps of the inputs that a block holds or awaits.
  Index shared = 0;  ///< Bytes of shared memory of a block.
  Index slices = 1;  ///< Of the rows.
  Index grid = 1;    ///< Blocks of the launch.
  int cluster = 1;   ///< Blocks of a cluster.
  int clusters = 1;  ///< Chip: clusters that share the units of a head, a *team*.
  Index teams = 1;   ///< Chip: of one launch; others take turns.
  bool direct = false;  ///< Chip: what is exchanged goes to the registers of warps and not by way of shared memory.
  Index exchange = 0;   ///< Chip: bytes of memory by which the teams of a launch exchange the state.
  int octets = 0;       ///< Cluster, chip: of units, that a block has.
  int depth = 1;        ///< Warpgroup: slices of 64 units that are brought at once.
  int groups = 1;       ///< Cluster, chip: of warps, that share these units; chip: those of all blocks of the cluster.
  int parts = 1;        ///< Cluster, chip: warps of a group, that share the sums over h.
  Index pieces = 1;     ///< Diagonal: of the steps, walked side by side. One: T is not cut.
  int left_out = 0;     ///< Cluster, for measurements: a step goes without its exchange (1), products (2) or cell (3).
  double microseconds = 0;  ///< As estimated; 0: not estimated.
  std::string why;

  int threads() const { return 32 * warps; }
  std::string explain() const;
  bool operator==(const GpuDensePlan&) const = default;
};

/// Whether all blocks of a launch run at once, and wait for each other.
bool takes_the_chip(const GpuDensePlan& plan);

/// DenseAlgorithm::diagonal: pieces whose values one thread that goes from piece to piece asks for at once.
int diagonal_batch(Index states);

/// Clusters of that many blocks that run at once, each block on a multiprocessor of its own.
Index clusters_at_once(const GpuModel& gpu, int cluster);

/// The numbers of rows up to `most` that divide a batch into slices as evenly as can be, from the greatest.
std::vector<int> even_row_counts(Index rows, int most);

/// Throws Error: invalid_argument for what never fits, unsupported for an algorithm or a size that this GPU cannot
/// hold.
GpuDensePlan plan_gpu_dense(const GpuDenseProblem& problem, const GpuModel& gpu);

}  // namespace penstock::plan
