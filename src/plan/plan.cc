#include "plan/plan.h"

#include <algorithm>

#include "base/check.h"

namespace penstock::plan {
namespace {

/// A chunk of the parallel scan. Fixed, so that results do not depend on the number of threads; long enough that the
/// pass over the chunks' summaries costs nothing, short enough that 8,192 steps already occupy eight threads.
constexpr Index kChunk = 1024;

/// Multiply-adds of one step below which sharing it between threads loses more at the barrier than it gains: two
/// threads meet in 0.2 to 0.4 us, in which one of them does some 20,000 multiply-adds; from twice this on two share it.
constexpr Index kWorthSharing = 32'000;

/// Rows of a dense layer that one thread should have: with fewer it waits for the recurrent matrix, all of which each
/// group of rows reads at every step. Below so many multiply-adds of a step for each thread, the barrier costs more.
constexpr Index kRowsEach = 4;
constexpr Index kWorthGathering = 80'000;

/// Weights of a recurrent matrix, about what a core's own cache holds, from which even two single rows go together.
/// Below so many rows for each of two threads they share it too: two tiles of six hardly pay for reading all of it.
constexpr Index kLargeMatrix = Index{1} << 18;
constexpr Index kRowsEachOfLarge = 12;

/// Groups of rows that go on their own.
int dense_row_parts(const Problem& problem) {
  const Index parts = std::min<Index>(problem.threads, problem.rows);
  const Index matrix = problem.cell->info.gates * problem.hidden * (problem.hidden / problem.heads);
  const bool few = parts > 1 && problem.rows < parts * kRowsEach;
  const bool large = matrix >= kLargeMatrix;
  const bool worth = matrix * problem.rows / problem.threads >= kWorthGathering && (problem.rows > parts || large);
  if (few) return static_cast<int>(worth ? std::max<Index>(1, problem.rows / kRowsEach) : parts);
  const bool pairs = large && parts % 2 == 0 && problem.rows < parts * kRowsEachOfLarge;
  return static_cast<int>(pairs ? parts / 2 : parts);
}

Plan plan_dense(const Problem& problem) {
  require(problem.algorithm != Algorithm::scan,
          "algorithm must be automatic or sequential for cell {}, not scan: its gates depend on the previous state",
          problem.cell->info.name);
  Plan plan;
  plan.row_parts = dense_row_parts(problem);
  const Index head_size = problem.hidden / problem.heads;
  const Index rows_each = (problem.rows + plan.row_parts - 1) / plan.row_parts;
  const Index step_work = problem.cell->info.gates * problem.hidden * head_size * rows_each;
  const Index spare = problem.threads / plan.row_parts;
  plan.channel_parts = static_cast<int>(std::clamp<Index>(step_work / kWorthSharing, 1, spare));
  plan.why = plan.channel_parts > 1 ? "few rows for each thread, and a step large enough to share units at a barrier"
             : plan.row_parts > 1   ? "rows are independent: no thread waits for another"
                                    : "one row, and a step too small to share";
  return plan;
}

Plan plan_scan(const Problem& problem) {
  require(
      problem.algorithm != Algorithm::scan || !problem.exact,
      "algorithm must be automatic or sequential in exact mode, not scan: chunks round differently where a sequence "
      "is split");
  Plan plan;
  const Index groups = std::max<Index>(1, problem.hidden / problem.channels_each);
  const bool enough = problem.rows * groups >= problem.threads;
  const bool long_enough = problem.steps >= 2 * kChunk;
  if (problem.algorithm == Algorithm::scan ||
      (problem.algorithm == Algorithm::automatic && !problem.exact && !enough && long_enough)) {
    plan.algorithm = Algorithm::scan;
    plan.chunk = kChunk;
    // Chunks are taken by whichever thread is free, so the rows need no parts of their own.
    plan.row_parts = problem.threads;
    plan.why = problem.algorithm == Algorithm::scan ? "asked for"
                                                    : "too few rows and channels to occupy the threads, T long enough";
    return plan;
  }
  plan.row_parts = static_cast<int>(std::min<Index>(problem.threads, problem.rows));
  plan.channel_parts = static_cast<int>(std::clamp<Index>(problem.threads / plan.row_parts, 1, groups));
  plan.why = enough          ? "rows and channels occupy the threads; a chunked scan would compute gates twice"
             : problem.exact ? "exact mode: one order of operations"
             : !long_enough  ? "T too short to cut into chunks"
                             : "asked for";
  return plan;
}

}  // namespace

std::string Plan::explain() const {
  return fmt::format("{} on {} thread{} ({} row part{} x {} channel part{}{}): {}", to_string(algorithm), threads(),
                     threads() == 1 ? "" : "s", row_parts, row_parts == 1 ? "" : "s", channel_parts,
                     channel_parts == 1 ? "" : "s", chunk > 0 ? fmt::format(", chunks of {}", chunk) : "", why);
}

Plan make_plan(const Problem& problem) {
  check_enum("algorithm", problem.algorithm, Algorithm::scan);
  return problem.cell->info.scan ? plan_scan(problem) : plan_dense(problem);
}

}  // namespace penstock::plan
