#include <algorithm>
#include <bit>
#include <cmath>
#include <span>

#include "base/check.h"
#include "plan/cell_table.h"
#include "plan/gpu/dense_rules.h"
#include "plan/gpu/dense_shape.h"

namespace penstock::plan {
namespace {

#include "plan/kernels/dense_cluster_shape.h"

constexpr int kMostRows = 16;
constexpr int kBlockUnits = 8;

/// A candidate plan: its shape and its estimate.
struct ClusterCandidate {
  ClusterShape shape{};
  bool backward = false;
  bool fits_registers = true;
  Index slices = 1;
  double step = 0;  // nanoseconds

  int tiles_m() const { return backward ? shape.back_tiles_m() : shape.tiles_m(); }
  int tiles_k() const { return backward ? shape.back_tiles_k() : shape.tiles_k(); }
  int slots() const { return backward ? shape.back_slots() : shape.slots(); }
  int shared() const { return backward ? shape.back_shared_bytes() : shape.shared_bytes(); }
  static constexpr int operand_registers() { return 0; }
  static constexpr int polled_registers() { return 0; }
};

constexpr OtherRegisters kForwardUse{.thread = 38, .slot = 14, .gate = 2, .split_gate = 8, .tile_m = 0};
constexpr OtherRegisters kBackwardUse{.thread = 48, .slot = 8, .gate = 2, .split_gate = 3, .tile_m = 2};

/// Returns the time of a step as a multiple of the sum of its parts. `tiles`: of eight rows.
double multiple_of_parts(const GpuDenseProblem& problem, int tiles, const GpuCosts::Cluster& cost) {
  if (problem.backward) return cost.backward * (tiles > 1 ? cost.back_tiles : 1);
  return problem.storage != Storage::f32 ? cost.halves : problem.tf32 ? cost.tf32 : cost.floats;
}

double step_time(const GpuDenseProblem& problem, const ClusterCandidate& c, const GpuModel& gpu) {
  const GpuCosts& cost = gpu.costs;
  const ClusterShape& shape = c.shape;
  const double received = c.backward ? shape.received_bytes() : shape.h_bytes();
  const int warps_of_core = (shape.warps() + 3) / 4;
  const double products = static_cast<double>(c.tiles_m()) * c.tiles_k() * shape.tiles_n() * warps_of_core;
  // Floats are multiplied as the sums of two parts each. In TF32 only forward steps were measured to be shorter.
  const double of_floats = shape.bytes == 4 && (c.backward || !problem.tf32) ? 3 : 1;
  const double others = static_cast<double>(shape.warps()) * (c.tiles_k() - shape.resident) * c.tiles_m();
  const double operand = static_cast<double>(shape.warps()) * c.tiles_k() * shape.tiles_n() / 2;
  // Sums are written, then read by fewer threads one after the other, without other work to hide the latency.
  constexpr int bytes_of_sum = 24;
  double sums = static_cast<double>(shape.warps()) * shape.own_halves() * shape.block_floats() * bytes_of_sum;
  if (c.backward) sums = received;
  const double parts = (shape.cluster > 8 ? cost.cluster.exchange_of_16 : cost.cluster.exchange_of_8) +
                       received / cost.team.received_bytes + products * of_floats * cost.team.tensor_tile +
                       ((others + operand) * ClusterShape::tile_bytes + sums) / cost.team.shared_bytes +
                       warps_of_core * cost.team.warp + c.slots() * cost.team.slot +
                       (shape.rows > 1 && shape.rows % 4 != 0 ? cost.cluster.uneven_rows : 0);
  // To join parts of its own takes a block part of the time that it would take to receive them.
  const double joined = c.backward ? 0.5 : 0.9;
  const double all_parts = 16.0 * shape.rows * shape.cluster * shape.own_parts_of_row(c.backward) * shape.mean_pieces;
  const double means = shape.mean_exchanges * (cost.cluster.means + (c.backward ? cost.cluster.back_means : 0)) +
                       std::lerp(shape.mean_bytes(c.backward), all_parts, joined) / cost.team.received_bytes;
  return parts * multiple_of_parts(problem, shape.tiles_n(), cost.cluster) + means;
}

ClusterShape shape_of(const GpuDenseProblem& problem) {
  const CellTraits& cell = cell_traits(problem.cell);
  ClusterShape shape{};
  shape.gates = cell.gates(), shape.states = cell.states(), shape.split = cell.split_gradients;
  shape.bytes = size_of(problem.storage);
  // A forward pass has the same shape, and the same result, with and without a tape.
  shape.training = !problem.backward;
  add_means(cell, problem.backward, shape);
  return shape;
}

csp::Domain row_counts(Index rows) {
  const std::vector<int> counts = even_row_counts(rows, kMostRows);
  return csp::Domain(std::vector<csp::Integer>(counts.begin(), counts.end()));
}

/// Returns the blocks of units per CTA that warps can share evenly.
int block_count(const ClusterShape& shape, Index head, bool backward) {
  const auto all = static_cast<int>((head + kBlockUnits - 1) / kBlockUnits);
  int blocks = (all + shape.cluster - 1) / shape.cluster;
  if (backward) return blocks;
  blocks = (blocks + shape.groups - 1) / shape.groups * shape.groups;
  while (shape.cluster * blocks * shape.pieces() % (2 * shape.parts) != 0) blocks += shape.groups;
  return blocks;
}

/// The values of the rule's variables.
struct ClusterChoice {
  int cluster, rows, groups, parts, stages;
};

ClusterChoice choice_of(std::span<const csp::Integer> v) {
  return {static_cast<int>(v[0]), static_cast<int>(v[1]), static_cast<int>(v[2]), static_cast<int>(v[3]),
          static_cast<int>(v[4])};
}

ClusterCandidate candidate_of(const GpuDenseProblem& problem, const GpuModel& gpu, const ClusterChoice& choice) {
  ClusterCandidate c;
  c.backward = problem.backward;
  c.shape = shape_of(problem);
  c.shape.cluster = choice.cluster, c.shape.rows = choice.rows;
  c.shape.groups = choice.groups, c.shape.parts = choice.parts;
  c.shape.blocks = block_count(c.shape, problem.head_size(), problem.backward);
  c.shape.stages = choice.stages;
  c.slices = (problem.rows + choice.rows - 1) / choice.rows;
  const CellTraits& cell = cell_traits(problem.cell);
  const int more = cell.alive_beyond(kCoveredValues) + cell.learnt * (problem.backward ? 2 : 1);
  // With means, a thread applies the cell to all of its slots at once, and may join parts of a row.
  constexpr int of_joined_parts = 4;
  const int joined = cell.averages && c.shape.joined_parts(problem.backward) > 1 ? of_joined_parts : 0;
  const int at_once = joined + (cell.averages ? cell.alive * (c.slots() - 1) : 0);
  const int other = other_registers(c, problem.backward ? kBackwardUse : kForwardUse, problem, more) + at_once;
  int resident = resident_tiles(c, other, gpu.registers);
  // Forward passes that read a part of R from shared memory, or have two tiles of rows, need more registers for resets.
  const bool tight = resident < c.tiles_k() || c.shape.tiles_n() > 1;
  if (tight && !problem.backward && !problem.ragged && !problem.every_state) {
    const auto resets = [&](bool crowded) { return reset_registers(problem, c.shape.states, crowded); };
    resident = resident_tiles(c, other + (resets(true) - resets(false)) * c.slots(), gpu.registers);
  }
  c.shape.resident = std::max(0, resident);
  c.fits_registers = resident >= 0 || !cell.averages;
  c.step = step_time(problem, c, gpu);
  return c;
}

Index turns_of(const GpuDenseProblem& problem, const GpuModel& gpu, Index cluster, Index rows) {
  const Index at_once = std::max<Index>(1, clusters_at_once(gpu, static_cast<int>(cluster)));
  return ((problem.rows + rows - 1) / rows * problem.heads + at_once - 1) / at_once;
}

/// Returns the nanoseconds of a step of all clusters that take turns.
double cluster_nanoseconds(const GpuDenseProblem& problem, const GpuModel& gpu, const ClusterCandidate& c) {
  return static_cast<double>(turns_of(problem, gpu, c.shape.cluster, c.shape.rows)) * c.step;
}

/// Returns the nanoseconds of one turn that its steps do not include: a block first reads its part of R. Backward
/// passes also compute more of the cell.
double cluster_overhead(const GpuDenseProblem& problem, const GpuModel& gpu, const ClusterCandidate& c) {
  const GpuCosts::Cluster& cost = gpu.costs.cluster;
  const auto units = static_cast<double>(problem.head_size());
  const double kilobytes = units * units * c.shape.gates * c.shape.bytes / c.shape.cluster / 1024;
  const double more = problem.backward ? c.slots() * cost.back_slot * static_cast<double>(problem.steps) : 0;
  return cost.start + kilobytes * cost.matrix + more;
}

GpuDensePlan cluster_plan(const GpuDenseProblem& problem, const GpuModel& gpu, const ClusterCandidate& best) {
  GpuDensePlan plan = plan_of_blocks(DenseAlgorithm::cluster, best, problem.training);
  plan.grid = best.slices * problem.heads * best.shape.cluster;
  const auto turns = static_cast<double>(turns_of(problem, gpu, best.shape.cluster, best.shape.rows));
  const double nanoseconds = best.step * static_cast<double>(problem.steps) + cluster_overhead(problem, gpu, best);
  plan.microseconds = turns * nanoseconds / 1000;
  plan.why = fmt::format("a step takes about {:.0f} ns", nanoseconds / static_cast<double>(problem.steps));
  return plan;
}

/// The rule, and the bytes of a block that it compares with the available ones.
struct ClusterRule {
  DenseRule rule{.name = "cluster"};
  csp::Expression shared = 0;
};

ClusterRule state_cluster(const GpuDenseProblem& problem, const GpuModel& gpu) {
  ClusterRule result;
  DenseRule& rule = result.rule;
  csp::Model& m = rule.model;
  const auto cluster = rule.var("cluster", asked_or(problem.cluster, csp::powers_of_two(2, gpu.cluster)));
  const auto rows = rule.var("rows", asked_or(problem.slots, row_counts(problem.rows)));
  const auto groups = rule.var("groups", asked_or(problem.groups, csp::Domain({1, 2, 3, 4, 6, 8, 12})));
  // In backward passes all warps are groups.
  const auto parts =
      rule.var("parts", problem.backward ? csp::Domain({1}) : asked_or(problem.parts, csp::Domain({1, 2, 4})));
  const auto stages = rule.var("stages", {2, 4});
  m.require("a block has at most 12 warps", groups * parts <= 12);
  m.require("parts divide the cluster", cluster % parts == 0);
  result.shared = m.call("shared_bytes", {cluster, rows, groups, parts, stages},
                         [=](std::span<const csp::Integer> v) {
                           const ClusterCandidate c = candidate_of(problem, gpu, choice_of(v));
                           return c.fits_registers ? csp::Integer{c.shared()} : csp::largest;
                         },
                         {0, csp::largest});
  m.minimise(
      [=](const csp::Solution& solution) {
        const ClusterChoice choice = choice_of(solution.values());
        const ClusterCandidate c = candidate_of(problem, gpu, choice);
        // In a tie prefer more stages, which hide longer loads, then fewer blocks.
        constexpr double fewer_stages = 1e-4, more_slices = 1e-9;
        return cluster_nanoseconds(problem, gpu, c) + (choice.stages == 2 ? fewer_stages : 0) +
               more_slices * static_cast<double>(c.slices);
      },
      [=](const csp::Box& at) {
        const csp::Range blocks = at.range(cluster);
        const double exchange = blocks.low > 8 ? gpu.costs.cluster.exchange_of_16 : gpu.costs.cluster.exchange_of_8;
        const double least = multiple_of_parts(problem, 1, gpu.costs.cluster) * exchange;
        return static_cast<double>(turns_of(problem, gpu, blocks.low, at.range(rows).high)) * least;
      });
  rule.plan_of = [=](const csp::Solution& solution) {
    return cluster_plan(problem, gpu, candidate_of(problem, gpu, choice_of(solution.values())));
  };
  return result;
}

}  // namespace

// The blocks of a cluster run on one group of multiprocessors; the remainder of each group stays idle. The groups are
// those of an H200, which runs 7 clusters of 16, 15 of 8 or 30 of 4 on 132 multiprocessors.
Index clusters_at_once(const GpuModel& gpu, int cluster) {
  const Index found = gpu.clusters_found[static_cast<std::size_t>(std::countr_zero(static_cast<unsigned>(cluster)))];
  if (found >= 0) return found;
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

DenseRule dense_cluster_rule(const GpuDenseProblem& problem, const GpuModel& gpu) {
  DenseRule rule{.name = "cluster"};
  if (!gpu.has_clusters()) {
    constexpr int first = 90;
    rule.refused = gpu.architecture() < first
                       ? fmt::format("clusters of blocks need a chip of sm_90 or later, and {} is of sm_{}", gpu.name,
                                     gpu.architecture())
                       : fmt::format("{} runs no clusters of blocks", gpu.name);
    return rule;
  }
  if (cell_traits(problem.cell).phases != 1) {
    rule.refused =
        fmt::format("the cluster algorithm exchanges once a step, and {} needs a second exchange", problem.cell);
    return rule;
  }
  rule.refused = exchange_refusal(problem, rule.name);
  if (!rule.refused.empty()) return rule;
  ClusterRule stated = state_cluster(problem, gpu);
  stated.rule.model.require("shared memory holds what registers do not", stated.shared <= gpu.block_bytes);
  stated.rule.shortage = [problem, gpu] {
    ClusterRule least = state_cluster(problem, gpu);
    least.rule.model.minimise(least.shared);
    return fmt::format(
        "the recurrent matrix of a head of {} units of {} in {}, spread over {} blocks, needs {} KB of shared memory "
        "of each beside the registers, and a block of {} has {}",
        problem.head_size(), problem.cell, to_string(problem.storage), gpu.cluster,
        static_cast<Index>(least.rule.model.solve()->cost()) / 1024, gpu.name, gpu.block_bytes / 1024);
  };
  return std::move(stated.rule);
}

}  // namespace penstock::plan
