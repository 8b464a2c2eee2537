// Recurrences of dense cells over large batches, by warpgroups of Hopper.

#include <algorithm>
#include <span>

#include "base/check.h"
#include "plan/cell_table.h"
#include "plan/gpu/dense_rules.h"

namespace penstock::plan {
namespace {

namespace warpgroup_layout {
#include "plan/kernels/dense_warpgroup_shape.h"
}  // namespace warpgroup_layout

using TeamShape = warpgroup_layout::WarpgroupShape;

constexpr int kMostGates = 4, kMostItems = 32, kMostItemBytes = 16 << 10, kMostStages = 8;
/// A warpgroup releases an item once it has issued the products of the next, so with one stage it would wait for ever.
constexpr int kLeastStages = 2;
/// Registers of a multiplying thread for R, sums and states. More were observed to spill.
constexpr int kMostWarpgroupRegisters = TeamShape::usual_registers;
/// Registers if the warps that bring the operand do with fewer: forward, where blocks share no sums. The warps that
/// write the tape are then slower, so this is for matrices that need it.
constexpr int kMostForLargeMatrices = kMostWarpgroupRegisters + 8;
/// Registers that floats need beyond those of halves: for gate functions with all digits.
constexpr int kMoreForFloats = 16;
/// Values of a unit at the same time in a custom cell. Cells with more were observed to spill.
constexpr int kMostValues = 64;
/// Learnt vectors of a custom cell.
constexpr int kMostVectors = 4;
/// Bytes of the operand in flight to a block. With fewer the tensor cores wait.
constexpr int kLeastUnderWay = 32 << 10, kEnoughUnderWay = 96 << 10;
/// Limits of blocks whose warpgroups have rows of their own: bytes under way, stages of the operand, and items.
constexpr int kUnderWay = 64 << 10, kUnderWayStreaming = 32 << 10, kMostStagesOfWide = 16, kMostItemsOfWide = 64;
/// Bytes that teams exchange and stream. With more, the L2 cache of Hopper, 50 MiB, does not keep the operand.
constexpr double kMostInCache = 56 << 20;

/// Costs in nanoseconds. Values are rows of a portion times operand columns of a block. Measured on an H100, those of
/// two terms on an H200, and fitted within about 10 %.
struct WarpgroupCosts {
  double exchange = 1700;      ///< A step with one portion
  double alone_value = 0.04;   ///< Further time per value with one portion
  double next_portion = 400;   ///< Each further portion, while there are few
  double portion = 610;        ///< Each portion, if there are enough to hide all exchanges
  double value = 0.024;        ///< Further time per value
  double shared_row = 3.8e-4;  ///< Further time per value and row with R in shared memory
  double row = 0;              ///< Further time per row of a portion
  double column = 1;           ///< Each portion per operand column, with two terms
  double alone_column = 0.6;   ///< The same with one portion
  double step = 1.05;          ///< A step, as a multiple of the sum of its parts
  double start = 7000;         ///< Time before the first step of a run, and after the last
  double matrix = 55;          ///< Further such time for each KB of R that a block has of halves
  double float_matrix = 280;   ///< The same of floats
};

constexpr WarpgroupCosts kBackwardCosts = {.exchange = 1900,
                                           .alone_value = 0.038,
                                           .next_portion = 600,
                                           .portion = 300,
                                           .value = 0.038,
                                           .shared_row = 0,
                                           .row = 41,
                                           .step = 0.9,
                                           .start = 5000,
                                           .matrix = 83,
                                           .float_matrix = 210};

struct WarpgroupCandidate {
  TeamShape shape{};
  Index slices = 1, teams = 1, waves = 1;
  double bytes_per_ns = 0;  // of the chip's memory
  bool fits = false;
};

int most_registers(const TeamShape& shape, int of_halves) {
  return of_halves - (shape.bytes == 4 ? kMoreForFloats : 0);
}

/// Distributes R over the registers and the shared memory of blocks whose warpgroups have rows of their own; what is
/// left is streamed.
void fill_wide(TeamShape& shape, Index block_bytes) {
  const int items = shape.own_items();
  const int most = std::min(std::clamp(kUnderWay / shape.item_bytes(), 2, kMostStagesOfWide), 2 * items);
  const auto hold = [&](int spare_registers) {
    const int step = shape.steps_of_item();
    shape.resident = 0;
    const int left = most_registers(shape, kMostWarpgroupRegisters) - shape.registers() - spare_registers;
    shape.resident = std::clamp(left / (4 * shape.matrix_terms()) / step * step, 0, shape.own_steps());
    return items - shape.resident_items();
  };
  // Further registers that the compiler was observed to need: where sums are exchanged forward, and where R is
  // streamed.
  constexpr int of_sharing = 8, of_streaming = 28;
  const int plain = shape.backward ? shape.portions + (shape.states > 2 ? 4 : 0) : shape.shares == 1 ? 0 : of_sharing;
  shape.kept = hold(plain), shape.streamed = 0;
  // Fewer stages of the operand rather than R from memory.
  for (shape.stages = most; shape.stages >= std::min(most, kLeastStages); --shape.stages) {
    if (shape.shared_bytes() <= block_bytes) return;
  }
  shape.stages = std::clamp(kUnderWayStreaming / shape.item_bytes(), 2, most);
  const int left = hold(shape.rows > 16 ? of_streaming : plain);
  for (shape.kept = left; shape.kept >= 0; --shape.kept) {
    shape.streamed = left - shape.kept;
    if (shape.shared_bytes() <= block_bytes) return;
  }
}

/// Backward passes that stream nothing take items of one chunk: the first of them arrives sooner. Others take two, and
/// wait for half as many.
WarpgroupCandidate wide_candidate(const GpuModel& gpu, TeamShape shape) {
  WarpgroupCandidate c;
  if (shape.units % shape.group_units() != 0 || shape.all_chunks() % shape.shares != 0 ||
      shape.rows % (8 * shape.shares) != 0 || (shape.backward && shape.shares == 1) ||
      (shape.shares > 1 && shape.portions > 2) || (shape.backward && shape.terms > 1)) {
    return c;
  }
  for (shape.depth = shape.backward ? 1 : 2; shape.depth <= 2; ++shape.depth) {
    if (shape.chunks() % shape.depth != 0 || shape.items() > kMostItemsOfWide) continue;
    fill_wide(shape, gpu.block_bytes);
    if (shape.kept >= 0 && (shape.streamed == 0 || shape.depth == 2)) break;
  }
  if (shape.depth > 2) return c;
  c.shape = shape;
  // A loading thread has at least one row. Streams of floats were never measured.
  c.fits = shape.own_rows() <= 32 * shape.loaders() && (shape.terms == 1 || shape.streamed == 0) &&
           shape.registers() <= kMostWarpgroupRegisters && shape.blocks() <= clusters_at_once(gpu, 1);
  return c;
}

/// Distributes R over registers, up to `most` of a thread, and shared memory, which then has room for stages of items.
void fill_narrow(TeamShape& shape, int most, Index block_bytes) {
  const int step = shape.steps_of_item();
  shape.resident = 0;
  const int left = most_registers(shape, most) - shape.registers();
  shape.resident = std::clamp(left / (4 * shape.matrix_terms()) / step * step, 0, shape.own_steps());
  shape.kept = shape.own_items() - shape.resident_items();
  shape.stages = std::min(kMostStages, 2 * shape.own_items());
  while (shape.stages > 1 && shape.shared_bytes() > block_bytes) --shape.stages;
}

/// If shared memory holds a part of R: keeps more of it in registers, and makes items smaller, if that brings more of
/// the operand at once.
void widen(TeamShape& shape, Index block_bytes) {
  if (shape.backward || shape.resident == shape.own_steps() || shape.bytes_under_way() >= kEnoughUnderWay) return;
  for (int depth = shape.depth; depth > 1; depth /= 2) {
    TeamShape other = shape;
    other.depth = depth;
    if (other.items() > kMostItems) return;
    fill_narrow(other, kMostForLargeMatrices, block_bytes);
    if (other.bytes_under_way() > shape.bytes_under_way()) shape = other;
    if (shape.bytes_under_way() >= kEnoughUnderWay) return;
  }
}

WarpgroupCandidate narrow_candidate(const GpuModel& gpu, TeamShape shape) {
  shape.depth = 4;
  while (shape.depth > 1 &&
         (shape.chunks() % (shape.depth * TeamShape::parts) != 0 || shape.item_bytes() > kMostItemBytes)) {
    shape.depth /= 2;
  }
  fill_narrow(shape, kMostWarpgroupRegisters, gpu.block_bytes);
  // Items must be small enough for some to be in flight during a multiplication. Backward passes and pairs of terms
  // have less room.
  const int few_stages = shape.backward || shape.terms > 1 ? 4 : kLeastStages;
  while (shape.depth > 1 && shape.stages < std::min(few_stages, shape.own_items()) && 2 * shape.items() <= kMostItems) {
    shape.depth /= 2;
    fill_narrow(shape, kMostWarpgroupRegisters, gpu.block_bytes);
  }
  widen(shape, gpu.block_bytes);
  WarpgroupCandidate c;
  c.shape = shape;
  const bool alike = !shape.backward || shape.gates * shape.units % (4 * TeamShape::chunk_units) == 0;
  c.fits = alike && shape.registers() - 4 * shape.matrix_terms() * shape.resident <= kMostWarpgroupRegisters &&
           shape.items() <= kMostItems && shape.shared_bytes() <= gpu.block_bytes &&
           shape.stages >= std::min(kLeastStages, shape.own_items()) &&
           (shape.stages >= shape.own_items() || shape.bytes_under_way() >= kLeastUnderWay);
  return c;
}

WarpgroupCandidate warpgroup_candidate(const GpuDenseProblem& problem, const GpuModel& gpu, int rows, int portions,
                                       int shares) {
  const CellTraits& cell = cell_traits(problem.cell);
  TeamShape shape{};
  shape.backward = problem.backward;
  shape.gates = cell.gates(), shape.states = cell.states(), shape.split = cell.split_gradients;
  shape.units = TeamShape::padded(static_cast<int>(problem.head_size()), problem.backward, cell.gates());
  shape.rows = rows, shape.portions = portions, shape.shares = shares;
  shape.bytes = size_of(problem.storage), shape.terms = problem.factor_terms();
  WarpgroupCandidate c = shares > 0 ? wide_candidate(gpu, shape) : narrow_candidate(gpu, shape);
  if (!c.fits) return c;
  c.slices = (problem.rows + c.shape.team_rows() - 1) / c.shape.team_rows();
  const Index items = c.slices * problem.heads;
  const Index at_once = clusters_at_once(gpu, c.shape.cluster()) * c.shape.cluster();
  c.fits = at_once >= c.shape.blocks();
  c.teams = std::clamp<Index>(at_once / c.shape.blocks(), 1, items);
  c.waves = (items + c.teams - 1) / c.teams;
  constexpr double usual_bandwidth = 3.35e12;
  c.bytes_per_ns = (gpu.bandwidth > 0 ? gpu.bandwidth : usual_bandwidth) * 1e-9;
  return c;
}

/// Returns the time of a step of blocks whose warpgroups have rows of the matrix of their own. Measured on an H200, and
/// fitted within about 15 %. Streamed items come from memory, and in part from the L2 cache. With few stages and
/// more than that cache keeps, the operand takes time of memory too: so it was measured in backward passes of two teams
/// whose gradients of W x and of R h differ. Others keep the estimates that were fitted.
double wide_step_time(const WarpgroupCandidate& c) {
  const TeamShape& shape = c.shape;
  constexpr double exchange = 2500, row_of_backward = 30, portion = 700, value = 0.055, value_of_terms = 0.085;
  // Backward, blocks that share sums with fewer others were measured to take longer.
  constexpr int many_shares = 8;
  constexpr double with_fewer = 1.2;
  const double values = static_cast<double>(shape.rows) * shape.chunks() * TeamShape::chunk_units * shape.terms;
  const double blocks = static_cast<double>(c.teams * shape.blocks());
  const double streamed = blocks * TeamShape::parts * shape.streamed * static_cast<double>(shape.matrix_item_bytes());
  const bool beyond_cache = shape.backward && shape.split && shape.stages == kLeastStages && c.teams > 1 &&
                            static_cast<double>(c.teams * shape.exchange_bytes()) > kMostInCache;
  const double operand = beyond_cache ? blocks * shape.items() * shape.item_bytes() : 0;
  const double parts = exchange + (shape.backward ? row_of_backward * shape.rows : 0) +
                       shape.portions * (portion + std::max(values * (shape.terms > 1 ? value_of_terms : value),
                                                            (streamed + operand) / c.bytes_per_ns));
  return shape.backward && shape.shares < many_shares ? with_fewer * parts : parts;
}

WarpgroupCosts costs_of(const TeamShape& shape) { return shape.backward ? kBackwardCosts : WarpgroupCosts{}; }

double warpgroup_step_time(const WarpgroupCandidate& c) {
  const TeamShape& shape = c.shape;
  if (shape.wide()) return wide_step_time(c);
  const WarpgroupCosts cost = costs_of(shape);
  const double values = static_cast<double>(shape.rows) * shape.chunks() * TeamShape::chunk_units * shape.terms;
  const double columns = shape.terms > 1 ? shape.chunks() * TeamShape::chunk_units : 0;
  const double from_shared = 1 - static_cast<double>(shape.resident) / shape.own_steps();
  const double portion = cost.portion + cost.row * shape.rows + columns * cost.column +
                         values * (cost.value + cost.shared_row * shape.rows * from_shared);
  const double alone = cost.exchange + cost.row * shape.rows + columns * cost.alone_column + values * cost.alone_value +
                       (shape.portions - 1) * cost.next_portion;
  return cost.step * std::max(alone, shape.portions * portion);
}

/// Returns the nanoseconds of all runs of the teams.
double warpgroup_time(const GpuDenseProblem& problem, const WarpgroupCandidate& c) {
  const WarpgroupCosts cost = costs_of(c.shape);
  const auto units = static_cast<double>(problem.head_size());
  const double kilobytes = units * units * c.shape.gates * c.shape.bytes / c.shape.blocks() / 1024;
  const double start = cost.start + kilobytes * (c.shape.bytes == 4 ? cost.float_matrix : cost.matrix);
  return static_cast<double>(c.waves) * (start + warpgroup_step_time(c) * static_cast<double>(problem.steps));
}

GpuDensePlan warpgroup_plan(const GpuDenseProblem& problem, const WarpgroupCandidate& c) {
  const TeamShape& shape = c.shape;
  GpuDensePlan plan;
  plan.algorithm = DenseAlgorithm::warpgroup;
  plan.slots = shape.team_rows(), plan.groups = shape.portions;
  plan.warps = TeamShape::threads / 32;
  plan.parts = TeamShape::parts;
  plan.resident = shape.resident, plan.chunks = shape.own_steps();
  plan.stages = shape.stages, plan.depth = shape.depth;
  plan.shares = shape.shares, plan.kept = shape.kept, plan.streamed = shape.streamed;
  plan.shared = shape.shared_bytes();
  plan.octets = shape.own_units() / 8;
  plan.cluster = shape.cluster();
  plan.slices = c.slices, plan.clusters = shape.blocks() / shape.cluster();
  plan.teams = c.teams, plan.grid = c.teams * shape.blocks();
  plan.exchange = c.teams * shape.exchange_bytes();
  plan.microseconds = warpgroup_time(problem, c) / 1000;
  plan.why = time_of_teams(warpgroup_step_time(c), c.waves);
  return plan;
}

/// Returns why no number of rows gives a plan; an empty text if some may.
std::string warpgroup_refusal(const GpuDenseProblem& problem, const GpuModel& gpu) {
  const CellTraits& cell = cell_traits(problem.cell);
  constexpr int hopper = 90, word = 4;
  constexpr Index most = kMostItemsOfWide * TeamShape::chunk_units;
  if (gpu.architecture() != hopper) {
    return fmt::format("warpgroups multiply on chips of sm_{}, and {} is of sm_{}", hopper, gpu.name,
                       gpu.architecture());
  }
  if (problem.storage == Storage::f32 && (problem.exact || (problem.backward && !problem.tf32))) {
    return fmt::format("warpgroups multiply floats in {}",
                       problem.exact ? "the fast mode, not in exact mode" : "backward passes only in TF32");
  }
  if (problem.storage == Storage::f32 && !problem.backward && !cell.bounded) {
    return fmt::format("warpgroups multiply states as halves, and those of {} have no bound", problem.cell);
  }
  if (cell.phases != 1 || cell.gates() > kMostGates) {
    return fmt::format("warpgroups apply cells of one phase and at most {} gates, unlike {}", kMostGates, problem.cell);
  }
  if (cell.learnt > kMostVectors) {
    return fmt::format("warpgroups have registers for at most {} learnt vectors, and {} has {}", kMostVectors,
                       problem.cell, cell.learnt);
  }
  if (cell.alive > kMostValues) {
    return fmt::format("warpgroups have registers for cells of at most {} values at a time, and {} has {}", kMostValues,
                       problem.cell, cell.alive);
  }
  if (problem.head_size() > most) {
    return fmt::format("warpgroups share a head of up to {} units, not of {}", most, problem.head_size());
  }
  if (problem.alignment < word) {
    return fmt::format("warpgroups copy {} bytes at once, two units, and tensors and heads are multiples of {}", word,
                       problem.alignment);
  }
  // With fewer rows exchanges dominate, and other algorithms exchange faster. Estimates were fitted from this number
  // on. Nothing else keeps larger matrices on the chip.
  constexpr Index few = 32, on_chip = 2048;
  if (problem.algorithm == DenseAlgorithm::automatic && problem.rows < few && problem.head_size() <= on_chip) {
    return fmt::format("warpgroups are for batches of {} rows or more", few);
  }
  if (problem.cluster > 1 || problem.parts != 0 || problem.direct >= 0) {
    return "warpgroups have no such shapes";
  }
  return "";
}

}  // namespace

bool warpgroups_take(const GpuDenseProblem& problem, const GpuModel& gpu) {
  return warpgroup_refusal(problem, gpu).empty();
}

DenseRule dense_warpgroup_rule(const GpuDenseProblem& problem, const GpuModel& gpu) {
  DenseRule rule{.name = "warpgroup", .refused = warpgroup_refusal(problem, gpu)};
  if (!rule.refused.empty()) return rule;
  csp::Model& m = rule.model;
  // Backward passes exchange sums in pieces of 16 bytes.
  const auto rows = rule.var("rows", problem.backward ? csp::Domain({16, 32, 64}) : csp::Domain({16, 32, 48, 64}));
  const auto portions = rule.var("portions", csp::Domain({1, 2, 3, 4, 6, 8}));
  const auto shares = rule.var("shares", csp::Domain({0, 1, 2, 4, 8}));
  const auto candidate = [=](std::span<const csp::Integer> v) {
    return warpgroup_candidate(problem, gpu, static_cast<int>(v[0]), static_cast<int>(v[1]), static_cast<int>(v[2]));
  };
  if (problem.groups != 0) m.require("as many portions as were asked for", portions == problem.groups);
  if (problem.shares >= 0) m.require("as many shares as were asked for", shares == problem.shares);
  if (problem.slots != 0) m.require("as many rows as were asked for", rows * portions == problem.slots);
  m.require(
      "registers and shared memory of blocks that run at once hold the matrix and what is multiplied by it",
      m.call("fits", {rows, portions, shares},
             [=](std::span<const csp::Integer> v) { return csp::Integer{candidate(v).fits ? 1 : 0}; }, {0, 1}) == 1);
  m.minimise([=](const csp::Solution& solution) {
    const WarpgroupCandidate c = candidate(solution.values());
    constexpr double more_rows = 1e-3;  // in a tie prefer fewer unused rows
    return warpgroup_time(problem, c) + more_rows * static_cast<double>(c.shape.team_rows());
  });
  rule.plan_of = [=](const csp::Solution& solution) { return warpgroup_plan(problem, candidate(solution.values())); };
  return rule;
}

}  // namespace penstock::plan
