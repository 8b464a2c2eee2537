#include <algorithm>
#include <array>
#include <limits>

#include "base/check.h"
#include "plan/cell_table.h"
#include "plan/gpu_dense.h"

namespace penstock::plan {
namespace {

#include "plan/kernels/dense_cluster_shape.h"

constexpr int kClusterRegisters = 255;
constexpr int kMostRows = 16;
constexpr int kBlockUnits = 8;

/// What a step takes on an H200 (docs/results/gpu.md), in nanoseconds.
struct Costs {
  double exchange_of_8 = 300, exchange_of_16 = 350;  // an all-gather in a cluster, without its bytes
  double received_bytes = 50;                        // of one block, in a nanosecond
  double product = 4;                                // of two tiles, on one of a multiprocessor's four tensor cores
  double shared_bytes = 250;                         // of one multiprocessor, in a nanosecond
  double warp = 15;                                  // what each warp of a tensor core does beside
  double uneven = 45;                                // rows that do not come in fours meet in banks of shared memory
  double slot = 200;                                 // the cell, for one unit and row of each thread
};

/// A plan in the making: its shape, and how it fares.
struct Candidate {
  ClusterShape shape{};
  bool backward = false;
  Index slices = 1;
  double step = 0;  // nanoseconds

  int tiles_m() const { return backward ? shape.back_tiles_m() : shape.tiles_m(); }
  int tiles_k() const { return backward ? shape.back_tiles_k() : shape.tiles_k(); }
  int slots() const { return backward ? shape.back_slots() : shape.slots(); }
  int shared() const { return backward ? shape.back_shared_bytes() : shape.shared_bytes(); }
};

/// Registers of a thread beside the tiles of R: what the compiler was seen to use, and some more.
int other_registers(const Candidate& c, bool reset) {
  const ClusterShape& shape = c.shape;
  const int sums = c.tiles_m() * shape.tiles_n() * 4 * (c.tiles_m() * shape.tiles_n() >= 4 ? 1 : 2);
  const int of_floats = shape.bytes == 4 ? 24 : 0;  // their parts
  const int of_reset = reset ? 14 : 0;
  if (!c.backward) {
    const int of_slot = 14 + (shape.split ? 8 : 2) * shape.gates + shape.states + of_reset;
    return 38 + sums + of_floats + of_slot * c.slots();
  }
  const int loads = (shape.read_pieces() + 7) / 8;
  const int of_slot = 8 + (shape.split ? 3 : 2) * shape.gates + 2 * shape.states + 4 * loads + of_reset;
  return 48 + sums + of_floats + 2 * c.tiles_m() + of_slot * c.slots();
}

/// As many k-tiles of R in registers as there is room for.
void fill_registers(Candidate& c, bool reset, const GpuModel& gpu) {
  const int all = std::min(kClusterRegisters, gpu.registers / c.shape.threads() / 8 * 8);
  c.shape.resident = std::clamp((all - other_registers(c, reset)) / (4 * c.tiles_m()), 0, c.tiles_k());
}

double step_time(const Candidate& c) {
  const Costs cost;
  const ClusterShape& shape = c.shape;
  const double received = c.backward ? shape.received_bytes() : shape.h_bytes();
  const int warps_of_core = (shape.warps() + 3) / 4;
  const double products = static_cast<double>(c.tiles_m()) * c.tiles_k() * shape.tiles_n() * warps_of_core;
  const double of_floats = shape.bytes == 4 ? 3 : 1;
  const double others = static_cast<double>(shape.warps()) * (c.tiles_k() - shape.resident) * c.tiles_m();
  const double operand = static_cast<double>(shape.warps()) * c.tiles_k() * shape.tiles_n() / 2;
  // Written, and read by fewer threads one after the other, with nothing to hide behind.
  constexpr int bytes_of_sum = 24;
  double sums = static_cast<double>(shape.warps()) * shape.own_halves() * shape.block_floats() * bytes_of_sum;
  if (c.backward) sums = received;
  return (shape.cluster > 8 ? cost.exchange_of_16 : cost.exchange_of_8) + received / cost.received_bytes +
         products * of_floats * cost.product +
         ((others + operand) * ClusterShape::tile_bytes + sums) / cost.shared_bytes + warps_of_core * cost.warp +
         c.slots() * cost.slot + (shape.rows > 1 && shape.rows % 4 != 0 ? cost.uneven : 0);
}

ClusterShape shape_of(const GpuDenseProblem& problem) {
  const CellTraits& cell = cell_traits(problem.cell);
  ClusterShape shape{};
  shape.gates = cell.gates(), shape.states = cell.states(), shape.split = cell.split_gradients;
  shape.bytes = size_of(problem.storage);
  // With and without a tape a forward pass has one shape, and gives one result.
  shape.training = !problem.backward;
  return shape;
}

struct Warps {
  int groups, parts;
};

/// Backward all warps are groups.
std::vector<Warps> warp_counts(bool backward) {
  std::vector<Warps> counts;
  for (const int groups : {1, 2, 3, 4, 6, 8, 12}) {
    for (const int parts : {1, 2, 4}) {
      constexpr int most = 12;
      if (groups * parts <= most && (!backward || parts == 1)) counts.push_back({groups, parts});
    }
  }
  return counts;
}

/// Blocks of units for each CTA, so that warps share them evenly.
int block_count(const ClusterShape& shape, Index head, bool backward) {
  const auto all = static_cast<int>((head + kBlockUnits - 1) / kBlockUnits);
  int blocks = (all + shape.cluster - 1) / shape.cluster;
  if (backward) return blocks;
  blocks = (blocks + shape.groups - 1) / shape.groups * shape.groups;
  while (shape.cluster * blocks * shape.pieces() % (2 * shape.parts) != 0) blocks += shape.groups;
  return blocks;
}

class Search {
 public:
  Search(const GpuDenseProblem& problem, const GpuModel& gpu) : problem_(problem), gpu_(gpu) {}

  void run() {
    for (const int cluster : {2, 4, 8, 16}) {
      for (const int rows : even_row_counts(problem_.rows, kMostRows)) {
        for (const Warps& warps : warp_counts(problem_.backward)) try_shape(cluster, rows, warps);
      }
    }
  }
  double time() const { return time_; }
  bool found() const { return time_ < std::numeric_limits<double>::max(); }
  const Candidate& best() const { return best_; }
  /// Of the plans that do not fit, the least bytes of a block.
  Index least_bytes() const { return least_bytes_; }

 private:
  void try_shape(int cluster, int rows, const Warps& warps) {
    Candidate c;
    c.backward = problem_.backward;
    c.shape = shape_of(problem_);
    c.shape.cluster = cluster, c.shape.rows = rows;
    c.shape.groups = warps.groups, c.shape.parts = warps.parts;
    if (cluster % warps.parts != 0) return;
    c.shape.blocks = block_count(c.shape, problem_.head_size(), problem_.backward);
    c.shape.stages = 4;
    c.slices = (problem_.rows + rows - 1) / rows;
    fill_registers(c, problem_.reset, gpu_);
    if (c.shared() > gpu_.block_bytes) c.shape.stages = 2;
    if (c.shared() > gpu_.block_bytes) {
      least_bytes_ = std::min<Index>(least_bytes_, c.shared());
      return;
    }
    const Index at_once = std::max<Index>(1, clusters_at_once(gpu_, cluster));
    const Index waves = (c.slices * problem_.heads + at_once - 1) / at_once;
    c.step = step_time(c);
    const double time = static_cast<double>(waves) * c.step;
    if (time < time_) time_ = time, best_ = c;
  }

  const GpuDenseProblem& problem_;
  const GpuModel& gpu_;
  Candidate best_;
  double time_ = std::numeric_limits<double>::max();
  Index least_bytes_ = std::numeric_limits<Index>::max();
};

}  // namespace

// The blocks of a cluster belong to one group of multiprocessors: what does not divide them lies idle. The groups are
// those of an H200, which runs 7 clusters of 16, 15 of 8 or 30 of 4 on 132 multiprocessors.
Index clusters_at_once(const GpuModel& gpu, int cluster) {
  constexpr int large = 18, small = 16, groups = 7, large_groups = 5;
  Index at_once = 0, left = gpu.multiprocessors;
  for (int i = 0; left > 0; ++i) {
    const Index of_group = std::min<Index>(left, i % groups < large_groups ? large : small);
    at_once += of_group / cluster;
    left -= of_group;
  }
  return at_once;
}

std::vector<int> even_row_counts(Index rows, int limit) {
  std::vector<int> counts;
  for (int most = static_cast<int>(std::min<Index>(rows, limit)); most >= 1; --most) {
    const Index slices = (rows + most - 1) / most;
    const int even = static_cast<int>((rows + slices - 1) / slices);
    if (counts.empty() || counts.back() != even) counts.push_back(even);
  }
  return counts;
}

GpuDensePlan plan_dense_cluster(const GpuDenseProblem& problem, const GpuModel& gpu) {
  constexpr int first_with_clusters = 90;
  if (gpu.architecture() < first_with_clusters) {
    fail(ErrorCode::unsupported, "clusters of blocks need a chip of sm_{} or later, and {} is of sm_{}",
         first_with_clusters, gpu.name, gpu.architecture());
  }
  if (cell_traits(problem.cell).phases != 1) {
    fail(ErrorCode::unsupported, "the cluster algorithm exchanges once a step, and {} needs a second exchange",
         problem.cell);
  }
  Search search(problem, gpu);
  search.run();
  if (!search.found()) {
    fail(ErrorCode::unsupported,
         "the recurrent matrix of a head of {} units of {} in {}, spread over 16 blocks, needs {} KB of shared memory "
         "of "
         "each beside the registers, and a block of {} has {}",
         problem.head_size(), problem.cell, to_string(problem.storage), search.least_bytes() / 1024, gpu.name,
         gpu.block_bytes / 1024);
  }
  const Candidate& best = search.best();
  Candidate actual = best;
  actual.shape.training = problem.training;
  GpuDensePlan plan;
  plan.algorithm = DenseAlgorithm::cluster;
  plan.slots = best.shape.rows;
  plan.warps = best.shape.warps();
  plan.resident = best.shape.resident, plan.chunks = best.tiles_k();
  plan.stages = best.shape.stages;
  plan.shared = actual.shared();
  plan.slices = best.slices;
  plan.cluster = best.shape.cluster, plan.octets = best.shape.blocks;
  plan.groups = best.shape.groups, plan.parts = best.shape.parts;
  plan.grid = best.slices * problem.heads * best.shape.cluster;
  constexpr double overlapped = 0.8;  // of what the parts of a step add up to, as measured
  plan.microseconds = overlapped * search.time() / 1000 * static_cast<double>(problem.steps);
  plan.why = fmt::format("some {:.0f} ns a step", best.step);
  return plan;
}

}  // namespace penstock::plan
