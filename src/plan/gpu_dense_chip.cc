#include <algorithm>
#include <limits>

#include "base/check.h"
#include "plan/cell_table.h"
#include "plan/gpu_dense_shape.h"

namespace penstock::plan {
namespace {

namespace chip {
#include "plan/kernels/dense_cluster_shape.h"
// Behind the shape that it extends.
#include "plan/kernels/dense_chip_shape.h"
}  // namespace chip

/// What a step takes on an H200 (docs/results/gpu.md), in nanoseconds.
struct ChipCosts {
  double exchange = 920;       // from a store in one multiprocessor to its sight in another, barriers included
  double poll = 400;           // when a thread has more to wait for than it can ask for at once
  double gathered_bytes = 60;  // of one block, in a nanosecond
  double cached_bytes = 4500;  // of all blocks, in a nanosecond
  double sums = 500;           // from multiprocessor to multiprocessor of a cluster
  double sums_of_two = 420;    // the same of clusters of two
  double block_sums = 60;      // in a block alone
  double received_bytes = 50;  // of one block, in a nanosecond
  double product = 4;          // of two tiles, on one of a multiprocessor's four tensor cores
  double shared_bytes = 250;   // of one multiprocessor, in a nanosecond
  double warp = 15;            // what each warp of a tensor core does beside
  double slot = 200;           // the cell, for one unit and row of each thread
  double backward = 250;       // more, for a step of a backward pass
};

constexpr int kMostTeamRows = 32;

struct TeamCandidate {
  chip::ChipShape shape{};
  bool backward = false;
  Index slices = 1, teams = 1, waves = 1;

  int tiles_m() const { return shape.chip_tiles_m(backward); }
  int tiles_k() const { return shape.chip_tiles_k(backward); }
  int shared() const { return shape.chip_shared_bytes(backward); }
  /// Blocks of a team.
  int team() const { return shape.clusters * shape.cluster; }
};

/// Registers of a thread beside the tiles of R: what the compiler was seen to use, and some more.
int registers_beside(const TeamCandidate& c, bool reset) {
  const chip::ChipShape& shape = c.shape;
  const int tiles = c.tiles_m() * shape.tiles_n();
  const int products = tiles * 4 * (tiles >= 4 ? 1 : 2) + 4 * shape.tiles_n();
  const int polled = 7 * chip::ChipShape::polled(shape.gathered_pieces(c.backward) * shape.rows, shape.threads());
  const int sums = std::max(products, polled) + 2 * c.tiles_m();
  const int of_floats = shape.bytes == 4 ? 24 : 0;  // their parts
  const int of_reset = reset ? 14 : 0;
  if (!c.backward) {
    const int of_slot = 18 + (shape.split ? 11 : 2) * shape.gates + shape.states + of_reset;
    return 52 + sums + of_floats + of_slot * shape.cell_slots();
  }
  const int loads = (shape.read_pieces() + 7) / 8;
  const int of_slot = 14 + (shape.split ? 8 : 1) * shape.gates + 2 * shape.states + 4 * loads + of_reset;
  return 56 + sums + of_floats + of_slot * shape.cell_slots();
}

double team_step_time(const TeamCandidate& c) {
  const ChipCosts cost;
  const chip::ChipShape& shape = c.shape;
  const double gathered = shape.gathered_pieces(c.backward) * shape.rows * 16.0;
  const double of_all = gathered * c.team() * static_cast<double>(c.teams);
  const double received = shape.sums_floats(c.backward) * 4.0;
  const int warps_of_core = (shape.warps() + 3) / 4;
  const double products = static_cast<double>(c.tiles_m()) * c.tiles_k() * shape.tiles_n() * warps_of_core;
  const double of_floats = shape.bytes == 4 ? 3 : 1;
  const double others = static_cast<double>(shape.warps()) * (c.tiles_k() - shape.resident) * c.tiles_m();
  const double operand = static_cast<double>(shape.warps()) * c.tiles_k() * shape.tiles_n() / 2;
  const int all = shape.gathered_pieces(c.backward) * shape.rows;
  const int polls = chip::ChipShape::polled(all, shape.threads()) * shape.threads();
  return cost.exchange + ((all + polls - 1) / polls - 1) * cost.poll +
         std::max(gathered / cost.gathered_bytes, of_all / cost.cached_bytes) +
         (shape.cluster > 2    ? cost.sums
          : shape.cluster == 2 ? cost.sums_of_two
                               : cost.block_sums) +
         received / cost.received_bytes +
         std::max(products * of_floats * cost.product,
                  (others + operand) * chip::ClusterShape::tile_bytes / cost.shared_bytes) +
         warps_of_core * cost.warp + shape.cell_slots() * cost.slot + (c.backward ? cost.backward : 0);
}

/// Plans in every shape that fits, the quickest kept.
class TeamSearch {
 public:
  TeamSearch(const GpuDenseProblem& problem, const GpuModel& gpu) : problem_(problem), gpu_(gpu) {}

  void run() {
    for (const int cluster : {1, 2, 4, 8}) {
      if (cluster > 1 && (!gpu_.has_clusters() || cluster > gpu_.cluster)) break;
      if (problem_.cluster != 0 && cluster != problem_.cluster) continue;
      for (const int rows : even_row_counts(problem_.rows, kMostTeamRows)) {
        if (problem_.slots != 0 && rows != problem_.slots) continue;
        try_rows(cluster, rows, (problem_.rows + rows - 1) / rows);
      }
    }
  }
  bool found() const { return time_ < std::numeric_limits<double>::max(); }
  double time() const { return time_; }
  const TeamCandidate& best() const { return best_; }

 private:
  void try_rows(int cluster, int rows, Index slices) {
    const Index all = (problem_.head_size() + 7) / 8, at_once = clusters_at_once(gpu_, cluster);
    int last_clusters = 0;
    for (int blocks = 1; blocks <= most_blocks_; ++blocks) {
      const auto clusters = static_cast<int>((all + cluster * blocks - 1) / (cluster * blocks));
      if (clusters > at_once || clusters == last_clusters) continue;
      last_clusters = clusters;
      for (const int groups : {1, 2, 3, 4, 6, 8, 12, 16}) {
        for (const int parts : {1, 2, 4, 8}) {
          if (problem_.groups != 0 && (groups != problem_.groups || parts != problem_.parts)) continue;
          if (groups * parts >= 4 && groups * parts <= 16) {
            try_shape(cluster, clusters, blocks, rows, slices, groups, parts);
          }
        }
      }
    }
  }

  void try_shape(int cluster, int clusters, int blocks, int rows, Index slices, int groups, int parts) {
    const CellTraits& cell = cell_traits(problem_.cell);
    TeamCandidate c;
    c.backward = problem_.backward;
    c.shape.gates = cell.gates(), c.shape.states = cell.states(), c.shape.split = cell.split_gradients;
    c.shape.bytes = size_of(problem_.storage);
    c.shape.cluster = cluster, c.shape.clusters = clusters, c.shape.blocks = blocks, c.shape.rows = rows;
    c.shape.groups = groups, c.shape.parts = parts;
    // With and without a tape a forward pass has one shape, and gives one result.
    c.shape.training = !problem_.backward;
    c.slices = slices;
    const Index items = slices * problem_.heads;
    c.teams = std::min(items, clusters_at_once(gpu_, cluster) / clusters);
    c.waves = (items + c.teams - 1) / c.teams;
    // Sums of many rows of R and many of the batch would take the registers of R.
    if (c.tiles_m() * c.shape.tiles_n() > most_tiles_ || c.tiles_m() * c.tiles_k() > most_unrolled_) return;
    const int room = std::min(kMostThreadRegisters, gpu_.registers / c.shape.threads() / 8 * 8);
    const int left = room - registers_beside(c, problem_.reset);
    if (left < 0) return;
    c.shape.resident = std::clamp(left / (4 * c.tiles_m()), 0, c.tiles_k());
    c.shape.stages = 4;
    if (c.shared() > gpu_.block_bytes) c.shape.stages = 2;
    if (c.shared() > gpu_.block_bytes) return;
    const double time = static_cast<double>(c.waves) * team_step_time(c);
    if (time < time_) time_ = time, best_ = c;
  }

  static constexpr int kMostThreadRegisters = 255;
  static constexpr int most_blocks_ = 16, most_tiles_ = 16, most_unrolled_ = 160;
  const GpuDenseProblem& problem_;
  const GpuModel& gpu_;
  TeamCandidate best_;
  double time_ = std::numeric_limits<double>::max();
};

}  // namespace

GpuDensePlan plan_dense_chip(const GpuDenseProblem& problem, const GpuModel& gpu) {
  if (cell_traits(problem.cell).phases != 1) {
    fail(ErrorCode::unsupported, "the chip algorithm exchanges once a step, and {} needs a second exchange",
         problem.cell);
  }
  TeamSearch search(problem, gpu);
  search.run();
  if (!search.found()) {
    fail(ErrorCode::unsupported,
         "the recurrent matrix of a head of {} units of {} in {} does not fit into the registers and shared memory of "
         "the {} multiprocessors of {}",
         problem.head_size(), problem.cell, to_string(problem.storage), gpu.multiprocessors, gpu.name);
  }
  const TeamCandidate& best = search.best();
  GpuDensePlan plan = plan_of_blocks(DenseAlgorithm::chip, best, problem.training);
  plan.clusters = best.shape.clusters;
  plan.teams = best.teams;
  plan.exchange = best.teams * best.shape.exchange_bytes(problem.backward) * chip::ChipShape::exchanges;
  plan.grid = best.teams * best.team();
  plan.microseconds = search.time() / 1000 * static_cast<double>(problem.steps);
  plan.why =
      fmt::format("some {:.0f} ns a step, {} times", search.time() / static_cast<double>(best.waves), best.waves);
  return plan;
}

}  // namespace penstock::plan
