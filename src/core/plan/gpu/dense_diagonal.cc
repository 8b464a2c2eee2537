// Recurrences with diagonal recurrent matrices: every unit is a head.

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "plan/cell_table.h"
#include "plan/gpu/dense_rules.h"

namespace penstock::plan {
namespace {

constexpr Index kFewestPieceSteps = 32;  // with fewer, the overhead between two passes exceeds the gain
constexpr Index kMostPieces = 4096;
constexpr Index kThreadsAtOnce = 1024;  // threads per multiprocessor, limited by registers
constexpr Index kFewThreads = 128;      // threads per multiprocessor that are too few to hide the latency of memory
constexpr Index kSomeThreads = 768;     // threads per multiprocessor that suffice if each loads some steps at once

Index threads_of(const GpuDenseProblem& problem, Index pieces) { return problem.rows * problem.hidden * pieces; }

/// Bytes per unit and position that a pass reads and writes. The tape is excluded: passes with and without it must use
/// the same pieces.
struct Bytes {
  double read, written;
};

Bytes bytes_of(const GpuDenseProblem& problem) {
  const CellTraits& cell = cell_traits(problem.cell);
  const double size = size_of(problem.storage), gates = cell.gates(), others = 4.0 * (cell.states() - 1);
  if (problem.backward) return {gates * size * (cell.split_gradients ? 2 : 1) + 2 * size + others, gates * size};
  return {gates * size, size};
}

/// Returns the microseconds of one pass over all pieces.
double pass_time(const GpuDenseProblem& problem, const GpuModel& gpu, Index pieces, double bytes, bool slopes) {
  const GpuCosts& cost = gpu.costs;
  const CellTraits& cell = cell_traits(problem.cell);
  const Index at_once = kThreadsAtOnce * gpu.multiprocessors, piece_steps = (problem.steps + pieces - 1) / pieces;
  const double turns = std::max(1.0, static_cast<double>(threads_of(problem, pieces)) / static_cast<double>(at_once));
  double step = cost.diagonal.step + cost.diagonal.gate * cell.gates();
  if (problem.backward) step *= cost.diagonal.backward;
  if (slopes) step *= 1 + cost.diagonal.slope * cell.states();
  const double values =
      static_cast<double>(problem.rows) * static_cast<double>(problem.steps) * static_cast<double>(problem.hidden);
  return std::max(step * static_cast<double>(piece_steps) * turns / 1000, values * bytes / cost.common.bytes);
}

double diagonal_time(const GpuDenseProblem& problem, const GpuModel& gpu, Index pieces) {
  const GpuCosts& cost = gpu.costs;
  const Bytes bytes = bytes_of(problem);
  if (pieces == 1) return cost.common.launch + pass_time(problem, gpu, 1, bytes.read + bytes.written, false);
  // Forward: a pass from guesses, then one from its results. Backward: a pass for the effects of pieces.
  const double first = pass_time(problem, gpu, pieces, bytes.read, true);
  const double second = pass_time(problem, gpu, pieces, bytes.read + bytes.written, !problem.backward);
  const double batches = std::ceil(static_cast<double>(pieces) / diagonal_batch(cell_traits(problem.cell).states()));
  const double joins = cost.diagonal.join * batches * (problem.backward ? 1 : 2) / 1000;
  const double launches = problem.backward ? 3 : 2 * diagonal_iterations + 1;
  return first + second + joins + launches * cost.common.launch;
}

/// Returns the number of steps that a thread loads ahead: as many as fit its registers if there are too few threads to
/// hide the latency of memory.
int steps_ahead(const GpuDenseProblem& problem, Index of_multiprocessor) {
  const Index states = cell_traits(problem.cell).states();
  const bool few = of_multiprocessor < kFewThreads, some = of_multiprocessor < kSomeThreads;
  if (problem.backward) return some ? (states > 2 ? 3 : 4) : 2;
  const int most = few ? 16 : some ? 8 : 4;
  return states > 2 ? std::min(most, 8) : most;
}

GpuDensePlan diagonal_plan(const GpuDenseProblem& problem, const GpuModel& gpu, Index pieces) {
  GpuDensePlan plan;
  plan.algorithm = DenseAlgorithm::diagonal;
  plan.slots = 1;
  plan.pieces = pieces;
  plan.slices = problem.rows;
  const Index threads = threads_of(problem, pieces);
  const Index of_multiprocessor = threads / gpu.multiprocessors;
  plan.warps = of_multiprocessor < kFewThreads ? 1 : 4;
  plan.stages = steps_ahead(problem, of_multiprocessor);
  plan.grid = (threads + plan.threads() - 1) / plan.threads();
  plan.microseconds = diagonal_time(problem, gpu, pieces);
  plan.why = problem.parts != 0 ? "asked for"
             : pieces == 1      ? "no cut of the steps would be quicker"
             : problem.backward
                 ? "pieces are joined by their linear effects"
                 : fmt::format("Newton's method joins the pieces in at most {} iterations", diagonal_iterations);
  return plan;
}

}  // namespace

int diagonal_batch(Index states) { return states == 1 ? 32 : states == 2 ? 12 : 4; }  // as many as fit the registers

DenseRule dense_diagonal_rule(const GpuDenseProblem& problem, const GpuModel& gpu) {
  constexpr Index most_threads = Index{1} << 36;
  DenseRule rule{.name = "diagonal"};
  if (problem.head_size() != 1) {
    rule.refused = fmt::format("every unit must be a head by itself, and heads have {} units", problem.head_size());
    return rule;
  }
  csp::Model& m = rule.model;
  const auto pieces = rule.var(
      "pieces", problem.parts != 0 ? csp::Domain({csp::Integer{problem.parts}}) : csp::powers_of_two(1, kMostPieces));
  if (problem.parts == 0) {
    m.require("a piece has steps enough", pieces * kFewestPieceSteps <= std::max(problem.steps, kFewestPieceSteps));
  }
  // With a limit, the gradient is not linear in the gradient that enters a piece.
  if (problem.clipped) m.require("gradients with a limit run in one piece", pieces == csp::Integer{1});
  m.require("one launch numbers the threads", pieces * csp::Integer{problem.rows * problem.hidden} <= most_threads);
  rule.plan_of = [=](const csp::Solution& solution) { return diagonal_plan(problem, gpu, solution.values()[0]); };
  m.minimise([=](const csp::Solution& solution) { return diagonal_time(problem, gpu, solution[pieces]); });
  return rule;
}

}  // namespace penstock::plan
