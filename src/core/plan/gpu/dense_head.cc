// Recurrences of dense cells with blocks that hold the matrix of a head.

#include <algorithm>
#include <span>

#include "base/check.h"
#include "plan/cell_table.h"
#include "plan/gpu/dense_rules.h"

namespace penstock::plan {
namespace {

#include "plan/kernels/dense_head_layout.h"

/// Registers of a thread besides the matrix: the observed use of the compiler plus a margin.
constexpr int kForwardRegisters = 112, kTrainingFloats = 144, kBackwardRegisters = 120;
constexpr int kOfSecondUnit = 24;  // of these, what a thread with one whole unit of one row, of halves, does not need
constexpr int kCoveredByHead = 20, kRegistersOfValue = 2;  // values of a unit among these, and of each further one
constexpr int kGatesOfOthers = 4, kRegistersOfGate = 32;   // gates of a forward pass among these, and of a further one
constexpr int kCrowdedRegisters = 24;                      // further registers for eight rows with lengths or resets
constexpr int kMostRegisters = 255, kRegistersOfFragment = 8;
constexpr int kMostWarps = 16;

/// Returns the registers available to each thread of a block that has a multiprocessor to itself, whose four cores have
/// as many each.
int registers_of_thread(const GpuModel& gpu, int threads) {
  constexpr int of_cores = 4 * 32;
  const int whole = (threads + of_cores - 1) / of_cores * of_cores;
  return std::min(kMostRegisters, gpu.registers / whole / 8 * 8);
}

HeadLayout layout_of(const HeadShape& shape, bool backward) {
  return backward ? HeadBackwardLayout(shape) : HeadForwardLayout(shape);
}

/// Returns the blocks per multiprocessor without register spills, if there are more blocks than multiprocessors.
/// `learnt`: registers of learnt vectors.
int blocks_of(const GpuDenseProblem& problem, const GpuModel& gpu, const GpuDensePlan& plan, int tiles, int states,
              int learnt) {
  constexpr int least = 104, of_more_states = 16, of_ragged_rows = 32;  // registers besides the matrix
  constexpr Index most = 16;
  if (problem.storage == Storage::f32 || plan.resident < plan.chunks) return 1;
  int registers = least + learnt + (states > 2 ? of_more_states : 0) + kRegistersOfFragment * tiles * plan.chunks;
  if (problem.ragged || problem.reset) registers += of_ragged_rows;
  const Index wanted = (plan.grid + gpu.multiprocessors - 1) / gpu.multiprocessors;
  const Index held = gpu.registers / (Index{plan.threads()} * registers);
  return static_cast<int>(std::clamp<Index>(std::min(wanted, held), 1, most));
}

/// Returns the plan of a block that holds the matrix, whether or not it fits.
GpuDensePlan head_candidate(const GpuDenseProblem& problem, const GpuModel& gpu, int slots, int stages) {
  const CellTraits& cell = cell_traits(problem.cell);
  HeadShape shape{.gates = cell.gates(),
                  .states = cell.states(),
                  .phases = cell.phases,
                  .split = cell.split_gradients,
                  .head = static_cast<int>(problem.head_size()),
                  .bytes = size_of(problem.storage),
                  .slots = slots,
                  .resident = 0,
                  .stages = stages,
                  .training = problem.training,
                  .taped = taped_floats(cell)};
  GpuDensePlan plan;
  plan.slots = slots;
  plan.warps = (shape.head + kHeadUnits - 1) / kHeadUnits;
  plan.slices = (problem.rows + slots - 1) / slots;
  plan.grid = plan.slices * problem.heads;
  plan.chunks = layout_of(shape, problem.backward).chunks;
  const int tiles = problem.backward ? 1 : shape.gates;
  const bool floats = problem.training && problem.storage == Storage::f32;
  int others = problem.backward ? kBackwardRegisters : floats ? kTrainingFloats : kForwardRegisters;
  const bool crowded = slots == 8 && (problem.ragged || problem.reset) && problem.backward;
  // A thread has one unit of one row with two slots, and two of each row otherwise, of two rows with eight.
  const int units = slots == 2 ? 1 : 2, rows = slots == 8 ? 2 : 1;
  const int learnt = cell.learnt * units * (problem.backward ? 1 + rows : 1);
  const int gates = problem.backward ? 0 : kRegistersOfGate * std::max(0, shape.gates - kGatesOfOthers);
  // Units that fill their warps, and gates that fill chunks.
  const bool whole =
      units == 1 && problem.storage != Storage::f32 && shape.head % ((problem.backward ? 2 : 1) * kHeadUnits) == 0;
  if (whole) others -= kOfSecondUnit;
  const int more = (whole ? 1 : kRegistersOfValue) * cell.alive_beyond(kCoveredByHead) +
                   (crowded ? kCrowdedRegisters : 0) + learnt + gates;
  const int left = registers_of_thread(gpu, plan.threads()) - others - more;
  plan.resident = std::clamp(left / (kRegistersOfFragment * tiles), 0, plan.chunks);
  // Floats are split into two numbers for products. A second product would need registers for the parts of the first.
  if (problem.storage == Storage::f32 && problem.backward && cell.phases == 2) plan.resident = plan.chunks / 3;
  shape.resident = plan.resident;
  plan.blocks = blocks_of(problem, gpu, plan, tiles, shape.states, learnt);
  plan.stages = stages;
  plan.shared = layout_of(shape, problem.backward).total;
  return plan;
}

/// Returns the shared memory available to each of the blocks that share a multiprocessor, without two buffers for the
/// means of all warps and of four columns of lanes.
Index room_of(const GpuDenseProblem& problem, const GpuModel& gpu, const GpuDensePlan& plan) {
  constexpr Index buffers = 2, columns = 4, piece_bytes = 16, of_piece = 4;
  Index pieces = 0;
  for (const int means : cell_traits(problem.cell).means(problem.backward)) {
    pieces = std::max(pieces, (means + of_piece - 1) / of_piece);
  }
  const Index of_means = buffers * columns * piece_bytes * pieces * plan.warps;
  return std::min(gpu.block_bytes, gpu.shared_bytes / plan.blocks - kReservedBytes) - of_means;
}

/// Returns the largest number of rows of a block. The gates of eight rows of floats, or all states of eight rows with
/// lengths or resets, would need too many registers besides a large matrix. So would values that wait for a mean.
int most_slots(const GpuDenseProblem& problem) {
  const CellTraits& cell = cell_traits(problem.cell);
  const bool crowded = cell.states() > 2 && (problem.ragged || problem.reset) && problem.head_size() > 64;
  return problem.storage == Storage::f32 || crowded || cell.averages ? 4 : 8;
}

double head_microseconds(const GpuDenseProblem& problem, const GpuModel& gpu, const GpuDensePlan& plan) {
  const GpuCosts::Head& costs = gpu.costs.head;
  const CellTraits& cell = cell_traits(problem.cell);
  const double floats = problem.storage != Storage::f32 ? 1 : problem.tf32 ? costs.tf32 : costs.floats;
  const int of_quarter = (plan.warps + 3) / 4;  // warps, of which each multiplies for 16 units
  const double products = static_cast<double>(cell.gates()) * static_cast<double>(problem.head_size() + 15) / 16;
  double step = costs.step + costs.gate * cell.gates() + costs.state * (cell.states() - 1) +
                costs.rows * (plan.slots / 2 - 1) + costs.product * floats * of_quarter * products;
  if (problem.training) step *= costs.training;
  const auto matrix = static_cast<double>(cell.gates() * problem.head_size() * problem.head_size()) *
                      static_cast<double>(size_of(problem.storage));
  step += matrix * (plan.chunks - plan.resident) / plan.chunks / costs.shared_bytes;
  if (problem.backward) step *= costs.backward;
  step += costs.means * static_cast<double>(cell.means(problem.backward).size());
  step *= 1 + costs.neighbour * (plan.blocks - 1);
  const Index at_once = Index{gpu.multiprocessors} * plan.blocks;
  const auto turns = static_cast<double>((plan.grid + at_once - 1) / at_once);
  return (costs.start + turns * step * static_cast<double>(problem.steps)) / 1000;
}

std::string why_slots(const GpuDenseProblem& problem, const GpuModel& gpu, const GpuDensePlan& plan) {
  if (problem.slots != 0) return "asked for";
  if (plan.slots == most_slots(problem)) return "as many rows as are multiplied at once";
  return plan.grid <= gpu.multiprocessors ? "all run at once" : "more rows would leave no room for the matrix";
}

/// Returns a cost for the preference of plans. Blocks with fewer rows have shorter steps while all blocks run at once.
/// If they do not, more rows per block are worth more than short steps.
double preference(const GpuModel& gpu, const GpuDensePlan& plan) {
  constexpr double later = 100, of_stages = 0.01;  // any slots; any stages
  const double rows = plan.grid <= gpu.multiprocessors ? plan.slots : later - plan.slots;
  return rows - of_stages * plan.stages;
}

}  // namespace

DenseRule dense_head_rule(const GpuDenseProblem& problem, const GpuModel& gpu) {
  constexpr Index largest = Index{kHeadUnits} * kMostWarps;
  require_argument(problem.slots == 0 || problem.slots == 8 || problem.slots == 4 || problem.slots == 2, "slots",
                   problem.slots, "8, 4, 2 or 0");
  DenseRule rule{.name = "head"};
  if (problem.head_size() > largest) {
    rule.refused = fmt::format("a block holds the recurrent matrix of a head of at most {} units, not of {}", largest,
                               problem.head_size());
    return rule;
  }
  csp::Model& m = rule.model;
  const auto slots = rule.var("slots", problem.slots != 0 ? csp::Domain({csp::Integer{problem.slots}})
                                                          : csp::powers_of_two(2, most_slots(problem)));
  const auto stages = rule.var("stages", csp::range(2, 8));
  const auto candidate = [=](std::span<const csp::Integer> v) {
    return head_candidate(problem, gpu, static_cast<int>(v[0]), static_cast<int>(v[1]));
  };
  const auto shared = m.call("shared_bytes", {slots, stages},
                             [=](std::span<const csp::Integer> v) { return candidate(v).shared; }, {0, csp::largest});
  const auto room = m.call("room", {slots, stages},
                           [=](std::span<const csp::Integer> v) { return room_of(problem, gpu, candidate(v)); },
                           {-kReservedBytes, gpu.block_bytes});
  m.require("shared memory holds what registers do not", shared <= room);
  rule.shortage = [=] {
    const GpuDensePlan smallest = head_candidate(problem, gpu, problem.slots != 0 ? problem.slots : 2, 2);
    return fmt::format(
        "the recurrent matrix of a head of {} units of {} in {} needs {} KB of shared memory beside the registers, and "
        "a block of {} has {}",
        problem.head_size(), problem.cell, to_string(problem.storage), smallest.shared / 1024, gpu.name,
        gpu.block_bytes / 1024);
  };
  rule.plan_of = [=](const csp::Solution& solution) {
    GpuDensePlan plan = candidate(solution.values());
    plan.microseconds = head_microseconds(problem, gpu, plan);
    plan.why = why_slots(problem, gpu, plan);
    return plan;
  };
  m.minimise([=](const csp::Solution& solution) { return preference(gpu, candidate(solution.values())); });
  return rule;
}

}  // namespace penstock::plan
