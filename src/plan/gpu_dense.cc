#include "plan/gpu_dense.h"

#include <algorithm>
#include <optional>

#include "base/check.h"
#include "plan/cell_table.h"

namespace penstock::plan {
namespace {

#include "plan/kernels/dense_head_layout.h"

/// Registers of a thread beside the matrix: what the compiler was seen to use, and some more.
constexpr int kForwardRegisters = 112, kTrainingFloats = 144, kBackwardRegisters = 120;
constexpr int kCrowdedRegisters = 24;  // more, of eight rows that end or begin anew
constexpr int kMostRegisters = 255, kRegistersOfFragment = 8;
constexpr int kMostWarps = 16;

/// Registers that each thread of a block can have when the block has a multiprocessor to itself.
int registers_of_thread(const GpuModel& gpu, int threads) {
  return std::min(kMostRegisters, gpu.registers / threads / 8 * 8);
}

HeadLayout layout_of(const HeadShape& shape, bool backward) {
  return backward ? HeadBackwardLayout(shape) : HeadForwardLayout(shape);
}

/// Blocks that a multiprocessor can hold without spilling registers, where there are more blocks than multiprocessors.
int blocks_of(const GpuDenseProblem& problem, const GpuModel& gpu, const GpuDensePlan& plan, int tiles, int states) {
  constexpr int least = 104, of_more_states = 16, of_ragged_rows = 32;  // registers beside the matrix
  constexpr Index most = 16;
  if (problem.storage == Storage::f32 || plan.resident < plan.chunks) return 1;
  int registers = least + (states > 2 ? of_more_states : 0) + kRegistersOfFragment * tiles * plan.chunks;
  if (problem.ragged || problem.reset) registers += of_ragged_rows;
  const Index wanted = (plan.grid + gpu.multiprocessors - 1) / gpu.multiprocessors;
  const Index held = gpu.registers / (Index{plan.threads()} * registers);
  return static_cast<int>(std::clamp<Index>(std::min(wanted, held), 1, most));
}

/// A block that holds the matrix, with as many stages as fit; `shared` is beyond the block's where none does.
GpuDensePlan head_candidate(const GpuDenseProblem& problem, const GpuModel& gpu, int slots) {
  constexpr int most_stages = 8, fewest_stages = 2;
  const CellTraits& cell = cell_traits(problem.cell);
  HeadShape shape{.gates = cell.gates(),
                  .states = cell.states(),
                  .phases = cell.phases,
                  .split = cell.split_gradients,
                  .head = static_cast<int>(problem.head_size()),
                  .bytes = size_of(problem.storage),
                  .slots = slots,
                  .resident = 0,
                  .stages = most_stages,
                  .training = problem.training};
  GpuDensePlan plan;
  plan.slots = slots;
  plan.warps = (shape.head + kHeadUnits - 1) / kHeadUnits;
  plan.slices = (problem.rows + slots - 1) / slots;
  plan.grid = plan.slices * problem.heads;
  plan.chunks = layout_of(shape, problem.backward).chunks;
  const int tiles = problem.backward ? 1 : shape.gates;
  const bool floats = problem.training && problem.storage == Storage::f32;
  const int others = problem.backward ? kBackwardRegisters : floats ? kTrainingFloats : kForwardRegisters;
  const bool crowded = slots == 8 && (problem.ragged || problem.reset) && problem.backward;
  const int left = registers_of_thread(gpu, plan.threads()) - others - (crowded ? kCrowdedRegisters : 0);
  plan.resident = std::clamp(left / (kRegistersOfFragment * tiles), 0, plan.chunks);
  // Floats are multiplied as two numbers each, which a second product would keep of what the first one had split.
  if (problem.storage == Storage::f32 && problem.backward && cell.phases == 2) plan.resident = plan.chunks / 3;
  shape.resident = plan.resident;
  plan.blocks = blocks_of(problem, gpu, plan, tiles, shape.states);
  const Index room = std::min(gpu.block_bytes, gpu.shared_bytes / plan.blocks - kReservedBytes);
  plan.stages = most_stages;
  do {
    shape.stages = plan.stages;
    plan.shared = layout_of(shape, problem.backward).total;
  } while (plan.shared > room && plan.stages-- > fewest_stages);
  return plan;
}

/// Where eight rows do not fit but fewer do.
GpuDensePlan largest_that_fits(const GpuDenseProblem& problem, const GpuModel& gpu) {
  GpuDensePlan plan = head_candidate(problem, gpu, 4);
  if (plan.shared > gpu.block_bytes) plan = head_candidate(problem, gpu, 2);
  plan.why = "more rows would leave no room for the matrix";
  return plan;
}

GpuDensePlan plan_head(const GpuDenseProblem& problem, const GpuModel& gpu) {
  constexpr Index largest = Index{kHeadUnits} * kMostWarps;
  if (problem.head_size() > largest) {
    fail(ErrorCode::unsupported, "a block holds the recurrent matrix of a head of at most {} units, not of {}", largest,
         problem.head_size());
  }
  // The fewer rows a block has, the shorter is a step; more of them than multiprocessors take turns.
  require(problem.slots == 0 || problem.slots == 8 || problem.slots == 4 || problem.slots == 2,
          "slots must be 8, 4, 2 or 0, not {}", problem.slots);
  // The gates of eight rows of floats, or all states of eight rows that end or begin anew, would take too many
  // registers beside a large matrix.
  const bool crowded =
      cell_traits(problem.cell).states() > 2 && problem.head_size() > 64 && (problem.ragged || problem.reset);
  const int most = problem.storage == Storage::f32 || crowded ? 4 : 8;
  for (const int slots : {2, 4, 8}) {
    if (problem.slots != 0 ? slots != problem.slots : slots > most) continue;
    GpuDensePlan plan = head_candidate(problem, gpu, slots);
    if (plan.shared > gpu.block_bytes) break;
    plan.why = problem.slots != 0 ? "asked for"
               : slots == most    ? "as many rows as are multiplied at once"
                                  : "all run at once";
    if (problem.slots != 0 || slots == most || plan.grid <= gpu.multiprocessors) return plan;
  }
  const GpuDensePlan smallest = head_candidate(problem, gpu, problem.slots != 0 ? problem.slots : 2);
  if (smallest.shared > gpu.block_bytes) {
    fail(ErrorCode::unsupported,
         "the recurrent matrix of a head of {} units of {} in {} needs {} KB of shared memory beside the registers, "
         "and a "
         "block of {} has {}",
         problem.head_size(), problem.cell, to_string(problem.storage), smallest.shared / 1024, gpu.name,
         gpu.block_bytes / 1024);
  }
  return largest_that_fits(problem, gpu);
}

/// Where the choice is open: a block for a head whose matrix it can hold, else the quickest of the others, with the
/// reasons of those that cannot run.
GpuDensePlan plan_quickest(const GpuDenseProblem& problem, const GpuModel& gpu) {
  std::string reasons;
  const auto attempt = [&](auto plan_of) -> std::optional<GpuDensePlan> {
    try {
      return plan_of(problem, gpu);
    } catch (const Error& refused) {
      if (refused.code() != ErrorCode::unsupported) throw;
      reasons += fmt::format("; {}", refused.what());
      return std::nullopt;
    }
  };
  if (const auto head = attempt(plan_head)) return *head;
  GpuDensePlan best = plan_dense_step(problem, gpu);
  for (const auto plan_of : {plan_dense_cluster, plan_dense_chip}) {
    const auto plan = attempt(plan_of);
    if (plan && plan->microseconds < best.microseconds) best = *plan;
  }
  best.why += reasons;
  return best;
}

}  // namespace

std::string_view to_string(DenseAlgorithm algorithm) {
  switch (algorithm) {
    case DenseAlgorithm::automatic:
      return "automatic";
    case DenseAlgorithm::head:
      return "head";
    case DenseAlgorithm::cluster:
      return "cluster";
    case DenseAlgorithm::chip:
      return "chip";
    case DenseAlgorithm::step:
      return "step";
  }
  return "";
}

std::string GpuDensePlan::explain() const {
  if (algorithm == DenseAlgorithm::step) {
    return fmt::format("step: a matrix product and {} blocks of {} threads for each step; {}", grid, threads(), why);
  }
  if (algorithm == DenseAlgorithm::cluster || algorithm == DenseAlgorithm::chip) {
    const std::string team = clusters == 1 ? "" : fmt::format(", {} of which share a matrix", clusters);
    return fmt::format(
        "{}: {} clusters of {} blocks of {} threads and {} KB{}, each {} rows of a head; a block has {} units, shared "
        "by {} groups of {} warps; {} of {} chunks of the matrix in registers, {} steps of inputs in shared memory; {}",
        to_string(algorithm), grid / cluster, cluster, threads(), shared / 1024, team, slots, 8 * octets, groups, parts,
        resident, chunks, stages, why);
  }
  return fmt::format(
      "{}: {} blocks of {} threads and {} KB, {} at once on a multiprocessor, each {} rows of a head; {} of {} chunks "
      "of the matrix in registers, {} "
      "steps "
      "of inputs in shared memory; {}",
      to_string(algorithm), grid, threads(), shared / 1024, blocks, slots, resident, chunks, stages, why);
}

GpuDensePlan plan_gpu_dense(const GpuDenseProblem& problem, const GpuModel& gpu) {
  constexpr Index most = GpuScanProblem::max_size;
  require(problem.rows >= 1 && problem.steps >= 1 && problem.hidden >= 1,
          "rows, steps and hidden must be at least 1, not {}, {} and {}", problem.rows, problem.steps, problem.hidden);
  require(std::max({problem.rows, problem.steps, problem.hidden}) <= most,
          "rows, steps and hidden must each be at most {}", most);
  require(problem.heads >= 1 && problem.hidden % problem.heads == 0, "heads ({}) must divide hidden ({})",
          problem.heads, problem.hidden);
  const CellTraits& cell = cell_traits(problem.cell);
  require(!cell.info.scan, "{} is a scan cell and has no recurrent matrix", problem.cell);
  require(problem.hidden * cell.gates() <= most, "the gates of hidden {} must be at most {} values", problem.hidden,
          most);
  switch (problem.algorithm) {
    case DenseAlgorithm::head:
      return plan_head(problem, gpu);
    case DenseAlgorithm::cluster:
      return plan_dense_cluster(problem, gpu);
    case DenseAlgorithm::chip:
      return plan_dense_chip(problem, gpu);
    case DenseAlgorithm::step:
      return plan_dense_step(problem, gpu);
    case DenseAlgorithm::automatic:
      break;
  }
  return plan_quickest(problem, gpu);
}

}  // namespace penstock::plan
