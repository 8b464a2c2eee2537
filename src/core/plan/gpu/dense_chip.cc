// Recurrences of dense cells with a recurrent matrix spread over many clusters.

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "plan/cell_table.h"
#include "plan/gpu/dense_rules.h"
#include "plan/gpu/dense_shape.h"

namespace penstock::plan {
namespace {

namespace chip {
#include "plan/kernels/dense_cluster_shape.h"
// After the shape that it extends.
#include "plan/kernels/dense_chip_shape.h"
}  // namespace chip

constexpr int kDirectParts = 8, kMostDirectCluster = 2;
constexpr int kMostTeamRows = 32, kMostTeamBlocks = 16, kMostTeamCluster = 8;
/// With means, a thread applies the cell to all of its slots at once. Further registers that a slot beyond the first
/// was observed to need besides the values of the cell and its learnt vectors.
constexpr int kFurtherSlot = 16;
constexpr OtherRegisters kTeamForward{.thread = 52, .slot = 18, .gate = 2, .split_gate = 11, .tile_m = 2};
/// Without clusters, with exchange to registers: addresses of sums are those of the block.
constexpr OtherRegisters kAloneForward{.thread = 46, .slot = 18, .gate = 2, .split_gate = 11, .tile_m = 0};
constexpr OtherRegisters kTeamBackward{.thread = 56, .slot = 14, .gate = 1, .split_gate = 8, .tile_m = 2};

struct TeamCandidate {
  chip::ChipShape shape{};
  bool backward = false;
  Index slices = 1, teams = 1, waves = 1;
  int resident = 0;       // tiles in registers; negative: too few registers for the other values
  double of_product = 1;  // products of the tensor cores that make one of the cell's

  int tiles_m() const { return shape.chip_tiles_m(backward); }
  int tiles_k() const { return shape.chip_tiles_k(backward); }
  int slots() const { return shape.cell_slots(); }
  int shared() const { return shape.chip_shared_bytes(backward); }
  int gathered_pieces() const { return shape.gathered_pieces(backward) * shape.rows; }
  int operand_registers() const {
    // Further registers that the compiler was observed to use if gradients of R h differ from those of W x.
    const int of_split = shape.direct && shape.split && backward ? 8 : 0;
    return shape.operand_registers(backward) + of_split;
  }
  int polled_registers() const {
    return shape.direct ? 0 : 7 * chip::ChipShape::polled(gathered_pieces(), shape.threads());
  }
  bool alone() const { return shape.cluster == 1 && !backward; }
  const OtherRegisters& other() const {
    return backward ? kTeamBackward : alone() && shape.direct ? kAloneForward : kTeamForward;
  }
  /// Returns the blocks of a team.
  int team() const { return shape.clusters * shape.cluster; }
};

/// The values of the rule's variables.
struct TeamChoice {
  int cluster, rows, blocks, groups, parts;
  bool direct;
};

TeamChoice team_choice(std::span<const csp::Integer> v) {
  return {static_cast<int>(v[0]), static_cast<int>(v[1]), static_cast<int>(v[2]),
          static_cast<int>(v[3]), static_cast<int>(v[4]), v[5] != 0};
}

Index octets_of_head(const GpuDenseProblem& problem) { return (problem.head_size() + 7) / 8; }

/// Floats are multiplied as the sums of two parts each, unless TF32 may be used.
double products_of_tensor_cores(const GpuDenseProblem& problem) {
  return problem.storage == Storage::f32 && !problem.tf32 ? 3 : 1;
}

/// Values that all candidates for one problem share, looked up once.
class TeamFacts {
 public:
  TeamFacts(const GpuDenseProblem& problem, const GpuModel& gpu)
      : rows_(problem.rows), heads_(problem.heads), octets_(octets_of_head(problem)), problem_(problem) {
    const CellTraits& cell = cell_traits(problem.cell);
    common_.backward = problem.backward;
    common_.of_product = products_of_tensor_cores(problem);
    common_.shape.gates = cell.gates(), common_.shape.states = cell.states();
    common_.shape.split = cell.split_gradients, common_.shape.bytes = size_of(problem.storage);
    // A forward pass has the same shape, and the same result, with and without a tape.
    common_.shape.training = !problem.backward;
    more_registers_ = cell.alive_beyond(kCoveredValues) + cell.learnt * (problem.backward ? 2 : 1);
    add_means(cell, problem.backward, common_.shape);
    if (cell.averages) {
      of_further_slot_ = cell.alive + cell.learnt * (problem.backward ? 2 : 1) + kFurtherSlot;
    }
    registers_ = gpu.registers, block_bytes_ = gpu.block_bytes;
    for (int cluster = 1; cluster <= kMostTeamCluster; ++cluster) {
      at_once_[static_cast<std::size_t>(cluster)] = clusters_at_once(gpu, cluster);
    }
  }

  Index at_once(csp::Integer cluster) const { return at_once_[static_cast<std::size_t>(cluster)]; }

  /// Returns a candidate with the distribution of the matrix, without that in registers.
  TeamCandidate split(const TeamChoice& choice) const {
    const int of_cluster = choice.cluster * choice.blocks;
    TeamCandidate c = common_;
    c.shape.cluster = choice.cluster, c.shape.blocks = choice.blocks, c.shape.rows = choice.rows;
    c.shape.clusters = static_cast<int>((octets_ + of_cluster - 1) / of_cluster);
    c.shape.groups = choice.groups, c.shape.parts = choice.parts;
    c.shape.direct = choice.direct;
    return c;
  }

  /// Returns a complete candidate: with the tiles in registers, and as many stages as shared memory has room for.
  TeamCandidate held(const TeamChoice& choice) const {
    TeamCandidate c = split(choice);
    c.resident =
        resident_tiles(c, other_registers(c, c.other(), problem_, more_registers_, of_further_slot_), registers_);
    c.shape.resident = std::max(0, c.resident);
    c.shape.stages = most_stages_;
    if (c.shared() > block_bytes_) c.shape.stages = most_stages_ / 2;
    return c;
  }

  TeamCandidate candidate(const TeamChoice& choice) const {
    TeamCandidate c = held(choice);
    c.slices = (rows_ + choice.rows - 1) / choice.rows;
    const Index items = c.slices * heads_;
    c.teams = std::clamp<Index>(at_once(choice.cluster) / c.shape.clusters, 1, items);
    c.waves = (items + c.teams - 1) / c.teams;
    return c;
  }

 private:
  TeamCandidate common_;
  Index rows_, heads_, octets_;
  GpuDenseProblem problem_;
  int registers_ = 0, more_registers_ = 0;
  std::optional<int> of_further_slot_;
  Index block_bytes_ = 0;
  static constexpr int most_stages_ = 4;
  std::array<Index, kMostTeamCluster + 1> at_once_{};
};

double sums_time(const GpuCosts::Chip& cost, int cluster) {
  return cluster > 2 ? cost.sums : cluster == 2 ? cost.pair_sums : cost.block_sums;
}

/// What takes the time of a step, of a candidate or at least of all candidates of a box.
struct TeamWork {
  double gathered = 0, gathered_by_all = 0;  // bytes that a block reads from the exchange, and those of all blocks
  double polls = 0, requests = 0;            // of the exchange, beyond the first
  double sums = 0;                           // nanoseconds to exchange sums within a cluster
  double received = 0, received_bytes = 1;   // bytes of sums of a block, and how many of them a nanosecond takes
  double products = 0;                       // tiles that a core multiplies, three times those of floats
  double others = 0, operands = 0;           // tiles from shared memory: of the matrix, and of what it multiplies
  double warps = 0, slots = 0;               // of a core, and of a thread
  double floats = 0;                         // forward, units and rows of floats: of a thread
  bool backward = false, alone = false;      // alone: forward without clusters
};

/// Returns the time of a step with exchange to registers: a sum of costs that were fitted to measurements.
double direct_step_time(const TeamWork& work, const GpuCosts& cost) {
  const double parts = cost.direct.exchange + (work.alone ? 0 : cost.direct.clusters) +
                       work.gathered / cost.chip.gathered_bytes + work.requests * cost.direct.request +
                       work.products * cost.direct.tile +
                       work.others * chip::ClusterShape::tile_bytes / cost.direct.shared_bytes +
                       work.received / work.received_bytes + (work.slots - 1) * cost.direct.slot +
                       work.floats * cost.direct.floats + (work.backward ? cost.direct.backward : 0);
  return cost.direct.step * parts;
}

/// Returns the time of a step with exchange to shared memory.
double staged_step_time(const TeamWork& work, const GpuCosts& cost) {
  const double parts =
      cost.chip.exchange + work.polls * cost.chip.poll +
      std::max(work.gathered / cost.chip.gathered_bytes, work.gathered_by_all / cost.common.l2_bytes) + work.sums +
      work.received / cost.team.received_bytes +
      std::max(work.products * cost.team.tensor_tile,
               (work.others + work.operands) * chip::ClusterShape::tile_bytes / cost.team.shared_bytes) +
      work.warps * cost.team.warp + work.slots * cost.team.slot + (work.backward ? cost.chip.backward : 0);
  return cost.chip.step * parts;
}

double team_step_time(const TeamCandidate& c, const GpuCosts& cost) {
  const chip::ChipShape& shape = c.shape;
  const int pieces = c.gathered_pieces(), polls = chip::ChipShape::polled(pieces, shape.threads()) * shape.threads();
  TeamWork work;
  work.gathered = 16.0 * pieces;
  work.gathered_by_all = work.gathered * c.team() * static_cast<double>(c.teams);
  work.polls = (pieces + polls - 1) / polls - 1;
  work.requests = shape.requests(c.backward) - 1;
  work.sums = sums_time(cost.chip, shape.cluster);
  work.received = shape.sums_floats(c.backward) * 4.0;
  work.received_bytes = shape.cluster == 1 ? cost.direct.sums_bytes : cost.direct.pair_bytes;
  work.warps = (shape.warps() + 3) / 4;
  work.products = static_cast<double>(c.tiles_m()) * c.tiles_k() * shape.tiles_n() * work.warps * c.of_product;
  work.others = static_cast<double>(shape.warps()) * (c.tiles_k() - shape.resident) * c.tiles_m();
  work.operands = static_cast<double>(shape.warps()) * c.tiles_k() * shape.tiles_n() / 2;
  work.slots = c.slots();
  if (shape.bytes == 4 && !c.backward) work.floats = 8.0 * shape.blocks * shape.rows / shape.threads();
  work.backward = c.backward, work.alone = c.alone();
  const int read = shape.joins_rows() ? 1 : shape.parts_of_team();  // parts of a row
  const double means = shape.mean_exchanges * (cost.chip.means + (c.backward ? cost.chip.back_means : 0)) +
                       shape.rows * read * shape.mean_pieces * 16 / cost.chip.gathered_bytes;
  return means + (shape.direct ? direct_step_time(work, cost) : staged_step_time(work, cost));
}

/// Lower bound of the nanoseconds of a step for all teams that take turns, while some variables are open.
class TeamBound {
 public:
  TeamBound(const GpuDenseProblem& problem, const GpuModel& gpu, const TeamFacts& facts)
      : cost_(gpu.costs), facts_(facts), octets_(octets_of_head(problem)), heads_(problem.heads), rows_(problem.rows) {
    const CellTraits& cell = cell_traits(problem.cell);
    pieces_ = size_of(problem.storage) / 2;
    sent_ = problem.backward ? cell.gates() : 1, summed_ = problem.backward ? 1 : cell.gates();
    of_floats_ = products_of_tensor_cores(problem);
    backward_ = problem.backward;
  }

  double operator()(csp::Range cluster, csp::Range rows, csp::Range blocks, csp::Range parts, csp::Range warps,
                    csp::Range direct) const {
    const Index team = (octets_ + blocks.high - 1) / blocks.high;  // smallest number of blocks
    const Index items = (rows_ + rows.high - 1) / rows.high * heads_;
    Index teams = 1;
    double sums = sums_time(cost_.chip, static_cast<int>(cluster.high));
    for (csp::Integer c = cluster.low; c <= cluster.high; c *= 2) {
      const Index clusters = (octets_ + c * blocks.high - 1) / (c * blocks.high);
      teams = std::max(teams, facts_.at_once(c) / clusters);
      sums = std::min(sums, sums_time(cost_.chip, static_cast<int>(c)));
    }
    TeamWork work;
    work.gathered = 16.0 * static_cast<double>(sent_ * pieces_ * rows.low) *
                    static_cast<double>((octets_ + cluster.high - 1) / cluster.high);
    work.gathered_by_all = work.gathered * static_cast<double>(team);
    work.sums = sums;
    work.received = static_cast<double>(cluster.low * parts.low * blocks.low * summed_ * 8 * 4 * rows.low);
    work.received_bytes = std::max(cost_.direct.sums_bytes, cost_.direct.pair_bytes);
    work.products =
        static_cast<double>(blocks.low * summed_ * sent_ * octets_ * pieces_ * ((rows.low + 7) / 8)) / 16 * of_floats_;
    work.warps = static_cast<double>((warps.low + 3) / 4);
    work.slots = static_cast<double>((blocks.low * rows.low + 4 * warps.high - 1) / (4 * warps.high));
    work.backward = backward_, work.alone = cluster.low == 1 && !backward_;
    const double staged_step = staged_step_time(work, cost_), direct_step = direct_step_time(work, cost_);
    const double step =
        direct.low == direct.high ? (direct.low != 0 ? direct_step : staged_step) : std::min(staged_step, direct_step);
    return static_cast<double>((items + teams - 1) / teams) * step;
  }

 private:
  GpuCosts cost_;
  TeamFacts facts_;
  Index octets_, heads_, rows_, pieces_ = 0, sent_ = 0, summed_ = 0;
  double of_floats_ = 1;
  bool backward_ = false;
};

csp::Domain team_rows(const GpuDenseProblem& problem) {
  if (problem.slots != 0) return csp::Domain({csp::Integer{problem.slots}});
  const std::vector<int> counts = even_row_counts(problem.rows, kMostTeamRows);
  return csp::Domain(std::vector<csp::Integer>(counts.begin(), counts.end()));
}

GpuDensePlan chip_plan(const GpuDenseProblem& problem, const GpuModel& gpu, const TeamCandidate& best) {
  const double step = team_step_time(best, gpu.costs);
  GpuDensePlan plan = plan_of_blocks(DenseAlgorithm::chip, best, problem.training);
  plan.clusters = best.shape.clusters;
  plan.direct = best.shape.direct;
  plan.teams = best.teams;
  plan.exchange =
      best.teams * best.shape.exchange_bytes(problem.backward) * chip::ChipShape::exchanges(problem.backward);
  plan.grid = best.teams * best.team();
  plan.microseconds =
      (static_cast<double>(best.waves) * step * static_cast<double>(problem.steps) + gpu.costs.chip.start) / 1000;
  plan.why = time_of_teams(step, best.waves);
  return plan;
}

/// Largest numbers of tiles of sums in registers, and of unrolled products.
constexpr int kMostSumTiles = 16, kMostUnrolled = 160;

// Functions of as few variables as possible: they then exclude values before the other variables are fixed.

csp::Expression sum_tiles(csp::Model& m, const TeamFacts& facts,
                          const std::vector<csp::Expression>& cluster_to_groups) {
  return m.call("sum_tiles", cluster_to_groups,
                [facts](std::span<const csp::Integer> v) {
                  const csp::Integer shape[] = {v[0], v[1], v[2], v[3], 1, 0};
                  const TeamCandidate c = facts.split(team_choice(shape));
                  return csp::Integer{c.tiles_m() * c.shape.tiles_n()};
                },
                {0, csp::largest});
}

csp::Expression unrolled_tiles(csp::Model& m, const TeamFacts& facts,
                               const std::vector<csp::Expression>& all_but_rows) {
  return m.call("unrolled_tiles", all_but_rows,
                [facts](std::span<const csp::Integer> v) {
                  const csp::Integer shape[] = {v[0], 1, v[1], v[2], v[3], v[4]};
                  const TeamCandidate c = facts.split(team_choice(shape));
                  return csp::Integer{c.tiles_m() * c.tiles_k()};
                },
                {0, csp::largest});
}

}  // namespace

DenseRule dense_chip_rule(const GpuDenseProblem& problem, const GpuModel& gpu) {
  DenseRule rule{.name = "chip"};
  if (cell_traits(problem.cell).phases != 1) {
    rule.refused =
        fmt::format("the chip algorithm exchanges once a step, and {} needs a second exchange", problem.cell);
    return rule;
  }
  constexpr int most_means = 32;  // of an exchange: 8 lanes send 16 bytes each
  rule.refused = exchange_refusal(problem, rule.name);
  for (const int means : cell_traits(problem.cell).means(problem.backward)) {
    if (means <= most_means) continue;
    rule.refused = fmt::format("the chip algorithm computes at most {} means at once, and {} needs {}", most_means,
                               problem.cell, means);
  }
  if (!rule.refused.empty()) return rule;
  csp::Model& m = rule.model;
  const TeamFacts facts(problem, gpu);
  const int most_cluster = gpu.has_clusters() ? std::min(gpu.cluster, kMostTeamCluster) : 1;
  const auto cluster = rule.var("cluster", asked_or(problem.cluster, csp::powers_of_two(1, most_cluster)));
  const auto rows = rule.var("rows", team_rows(problem));
  const auto blocks = rule.var("blocks", csp::range(1, kMostTeamBlocks));
  const auto groups = rule.var("groups", asked_or(problem.groups, {1, 2, 3, 4, 6, 8, 12, 16}));
  const auto parts = rule.var("parts", asked_or(problem.parts, {1, 2, 4, 8}));
  const auto direct = rule.var("direct", problem.direct < 0 ? csp::Domain({0, 1}) : csp::Domain({problem.direct}));
  const std::vector<csp::Expression> all = {cluster, rows, blocks, groups, parts, direct};
  const auto of_shape = [&](const char* name, csp::Range bounds, const auto& number) {
    return m.call(
        name, all, [=](std::span<const csp::Integer> v) { return csp::Integer{number(facts.held(team_choice(v)))}; },
        bounds);
  };
  const csp::Expression octets = octets_of_head(problem);
  const auto clusters = csp::ceil_div(octets, cluster * blocks);
  const auto at_once =
      m.call("clusters_at_once", {cluster}, [=](std::span<const csp::Integer> v) { return facts.at_once(v[0]); },
             {0, gpu.multiprocessors});
  const auto warps = groups * parts;
  m.require("a cluster has at most as many blocks as the chip allows", cluster <= most_cluster);
  m.require("a block has 4 to 16 warps", warps >= 4 && warps <= 16);
  // Each group would load all exchanged values, and with fewer warps half of the registers would stay unused. Blocks of
  // larger clusters exchange more sums than they save in loads.
  m.require("all eight warps of a block share what goes straight to their registers",
            csp::implies(direct == 1, groups == 1 && parts == kDirectParts));
  m.require("what goes straight to registers is shared by pairs of blocks at most",
            csp::implies(direct == 1, cluster <= kMostDirectCluster));
  m.require("the clusters of a team run at once", clusters <= at_once);
  m.require("no fewer units a block would do for these clusters", blocks == csp::ceil_div(octets, cluster * clusters));
  m.require("sums of a warp fit its registers", sum_tiles(m, facts, {cluster, rows, blocks, groups}) <= kMostSumTiles);
  m.require("products of a warp can be unrolled",
            unrolled_tiles(m, facts, {cluster, blocks, groups, parts, direct}) <= kMostUnrolled);
  m.require("registers hold what is not of the matrix",
            of_shape("resident_tiles", {-1, csp::largest}, [](const TeamCandidate& c) { return c.resident; }) >= 0);
  m.require("shared memory holds what registers do not",
            of_shape("shared_bytes", {0, csp::largest}, [](const TeamCandidate& c) { return c.shared(); }) <=
                gpu.block_bytes);
  const auto candidate = [=](const csp::Solution& solution) { return facts.candidate(team_choice(solution.values())); };
  m.minimise(
      [=, costs = gpu.costs](const csp::Solution& solution) {
        const TeamCandidate c = candidate(solution);
        constexpr double more_slices = 1e-9;  // in a tie prefer fewer blocks
        return static_cast<double>(c.waves) * team_step_time(c, costs) + more_slices * static_cast<double>(c.slices);
      },
      [=, bound = TeamBound(problem, gpu, facts)](const csp::Box& at) {
        return bound(at.range(cluster), at.range(rows), at.range(blocks), at.range(parts), at.range(warps),
                     at.range(direct));
      });
  rule.shortage = [problem, gpu] {
    return fmt::format(
        "the recurrent matrix of a head of {} units of {} in {} does not fit into the registers and shared memory of "
        "the {} multiprocessors of {}",
        problem.head_size(), problem.cell, to_string(problem.storage), gpu.multiprocessors, gpu.name);
  };
  rule.plan_of = [=](const csp::Solution& solution) { return chip_plan(problem, gpu, candidate(solution)); };
  return rule;
}

}  // namespace penstock::plan
