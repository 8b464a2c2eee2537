#include "plan/gpu/dense.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <numeric>
#include <optional>

#include "base/names.h"
#include "base/plural.h"
#include "plan/cell_table.h"
#include "plan/gpu/dense_rules.h"
#include "plan/tuning.h"

namespace penstock::plan {
namespace {

#include "plan/kernels/dense_tape.h"

void check_dense_problem(const GpuDenseProblem& problem) {
  constexpr Index most = GpuScanProblem::max_size;
  require(problem.rows >= 1 && problem.steps >= 1 && problem.hidden >= 1,
          "rows, steps and hidden must be at least 1, not {}, {} and {}", problem.rows, problem.steps, problem.hidden);
  require(std::max({problem.rows, problem.steps, problem.hidden}) <= most,
          "rows, steps and hidden must each be at most {}", most);
  require(problem.heads >= 1 && problem.hidden % problem.heads == 0, "heads ({}) must divide hidden ({})",
          problem.heads, problem.hidden);
  const CellTraits& cell = cell_traits(problem.cell);
  require(!cell.info.scan, "{} is a scan cell and has no recurrent matrix", problem.cell);
  const std::size_t exchanges = std::max(cell.forward_means.size(), cell.backward_means.size());
  if (exchanges > std::size_t{kMostExchanges}) {
    fail(ErrorCode::unsupported,
         "{} needs {} means one after the other at each step, and a GPU computes at most {}: use a CPU", problem.cell,
         exchanges, kMostExchanges);
  }
  require(problem.hidden * cell.gates() <= most, "the gates of hidden {} must be at most {} values", problem.hidden,
          most);
}

using MakeDenseRule = DenseRule (*)(const GpuDenseProblem&, const GpuModel&);

MakeDenseRule dense_rule_of(DenseAlgorithm algorithm) {
  switch (algorithm) {
    case DenseAlgorithm::head:
      return dense_head_rule;
    case DenseAlgorithm::cluster:
      return dense_cluster_rule;
    case DenseAlgorithm::chip:
      return dense_chip_rule;
    case DenseAlgorithm::warpgroup:
      return dense_warpgroup_rule;
    case DenseAlgorithm::diagonal:
      return dense_diagonal_rule;
    case DenseAlgorithm::step:
    case DenseAlgorithm::automatic:
      break;
  }
  return dense_step_rule;
}

DenseRule rule_by(DenseAlgorithm algorithm, const GpuDenseProblem& problem, const GpuModel& gpu) {
  const bool averages = algorithm != DenseAlgorithm::warpgroup && algorithm != DenseAlgorithm::diagonal;
  std::string refused = averages ? std::string() : means_refusal(problem);
  if (problem.restarts && algorithm != DenseAlgorithm::cluster && algorithm != DenseAlgorithm::chip) {
    refused =
        fmt::format("rows that start again at given states run by cluster and chip, not by {}", to_string(algorithm));
  }
  if (refused.empty()) return dense_rule_of(algorithm)(problem, gpu);
  return {.name = std::string(to_string(algorithm)), .refused = std::move(refused)};
}

GpuDensePlan plan_by(DenseAlgorithm algorithm, const GpuDenseProblem& problem, const GpuModel& gpu) {
  const DenseRule rule = rule_by(algorithm, problem, gpu);
  if (const std::optional<GpuDensePlan> plan = best_plan(rule)) return *plan;
  fail(ErrorCode::unsupported, "{}", reason_of(rule));
}

/// Returns the plan if no algorithm is requested: diagonal if every unit is a head, otherwise the one with the lowest
/// estimate of the others.
GpuDensePlan plan_quickest(const GpuDenseProblem& problem, const GpuModel& gpu) {
  const bool means = cell_traits(problem.cell).averages;
  if (problem.head_size() == 1 && !means) return plan_by(DenseAlgorithm::diagonal, problem, gpu);
  std::optional<GpuDensePlan> best;
  for (const DenseAlgorithm algorithm : dense_algorithms()) {
    if (algorithm == DenseAlgorithm::diagonal) continue;
    if (algorithm == DenseAlgorithm::warpgroup && !warpgroups_take(problem, gpu)) continue;
    auto plan = best_plan(rule_by(algorithm, problem, gpu));
    if (plan && (!best || plan->microseconds < best->microseconds)) best = std::move(plan);
  }
  return best ? *best : plan_by(DenseAlgorithm::step, problem, gpu);
}

}  // namespace

std::string means_refusal(const GpuDenseProblem& problem) {
  if (!cell_traits(problem.cell).averages) return "";
  return fmt::format("the units of {} read means over their head, which warpgroups and diagonals do not compute",
                     problem.cell);
}

std::string exchange_refusal(const GpuDenseProblem& problem, const std::string& algorithm) {
  constexpr std::size_t most = 8;  // as many barriers as there is room for
  const std::size_t exchanges = cell_traits(problem.cell).means(problem.backward).size();
  if (exchanges <= most) return "";
  return fmt::format("the {} algorithm exchanges means at most {} times a step, and {} needs {}", algorithm, most,
                     problem.cell, exchanges);
}

int taped_floats(const CellTraits& cell) {
  return TapedFloats(std::accumulate(cell.forward_means.begin(), cell.forward_means.end(), 0));
}

std::string_view to_string(DenseAlgorithm algorithm) {
  constexpr Names<7> names = {"auto", "head", "cluster", "chip", "warpgroup", "step", "diagonal"};
  return name_of(names, algorithm);
}

std::vector<DenseAlgorithm> dense_algorithms() {
  return {DenseAlgorithm::diagonal, DenseAlgorithm::head,      DenseAlgorithm::cluster,
          DenseAlgorithm::chip,     DenseAlgorithm::warpgroup, DenseAlgorithm::step};
}

namespace {

/// Returns what the blocks of a plan hold.
std::string held(const GpuDensePlan& plan) {
  return fmt::format("{} of {} of the matrix in registers, {} of inputs in shared memory", plan.resident,
                     counted(plan.chunks, "chunk"), counted(plan.stages, "step"));
}

}  // namespace

std::string GpuDensePlan::explain() const {
  if (algorithm == DenseAlgorithm::step) {
    return fmt::format("step: a matrix product and {} of {} threads for each step; {}", counted(grid, "block"),
                       threads(), why);
  }
  if (algorithm == DenseAlgorithm::diagonal) {
    const std::string cut = pieces == 1 ? std::string("all steps of a unit")
                                        : fmt::format("one of {} pieces of the steps of a unit", pieces);
    return fmt::format("diagonal: {} of {} threads; a thread runs {}; {}", counted(grid, "block"), threads(), cut, why);
  }
  if (algorithm == DenseAlgorithm::cluster || algorithm == DenseAlgorithm::chip) {
    const std::string of_blocks = cluster == 1
                                      ? counted(grid, "block")
                                      : fmt::format("{} of {} blocks", counted(grid / cluster, "cluster"), cluster);
    std::string team = clusters == 1 ? "" : fmt::format(", {} of which share a matrix", clusters);
    if (direct) team += " and exchange from registers to registers";
    const std::string of_warps = counted(parts, "warp");
    return fmt::format(
        "{}: {} of {} threads and {} KB{}, each with {} of a head; a block has {} units, shared by {}; {}; {}",
        to_string(algorithm), of_blocks, threads(), shared / 1024, team, counted(slots, "row"), 8 * octets,
        groups == 1 ? of_warps : fmt::format("{} groups of {}", groups, of_warps), held(*this), why);
  }
  if (algorithm == DenseAlgorithm::warpgroup) {
    std::string sharing = shares > 1 ? fmt::format("; {} blocks share sums", shares) : "";
    if (streamed > 0)
      sharing += fmt::format("; {} of {} loads of the matrix at every step", streamed, chunks / 4 / depth);
    return fmt::format(
        "warpgroup: {} of {} of {} threads and {} KB, each with {} of a head in {}; {} of {} of the matrix in "
        "registers, {} of what it multiplies under way{}; {}",
        counted(teams, "team"), counted(clusters * cluster, "block"), threads(), shared / 1024, counted(slots, "row"),
        counted(groups, "portion"), resident, counted(chunks, "step"),
        stages == 1 ? "1 copy" : fmt::format("{} copies", stages), sharing, why);
  }
  return fmt::format("{}: {} of {} threads and {} KB, {} at once on a multiprocessor, each with {} of a head; {}; {}",
                     to_string(algorithm), counted(grid, "block"), threads(), shared / 1024, blocks,
                     counted(slots, "row"), held(*this), why);
}

std::string time_of_teams(double step_nanoseconds, Index runs) {
  return fmt::format("a step takes about {:.0f} ns, and teams run all steps {}", step_nanoseconds,
                     runs == 1 ? "once" : fmt::format("{} times", runs));
}

bool takes_the_chip(const GpuDensePlan& plan) {
  return plan.algorithm == DenseAlgorithm::chip || plan.algorithm == DenseAlgorithm::warpgroup;
}

std::vector<DenseRule> dense_rules(const GpuDenseProblem& problem, const GpuModel& gpu) {
  check_dense_problem(problem);
  std::vector<DenseRule> rules;
  for (const DenseAlgorithm algorithm : dense_algorithms()) {
    if (algorithm == DenseAlgorithm::diagonal && problem.head_size() != 1) continue;
    if (algorithm == DenseAlgorithm::warpgroup && !warpgroups_take(problem, gpu)) continue;
    rules.push_back(rule_by(algorithm, problem, gpu));
  }
  return rules;
}

namespace {

/// Returns the plan of exact mode: algorithm and shape are those of one batch, the same for all, and only the number of
/// blocks follows the rows. The batch has everything that a batch can have, so what runs it runs all others.
GpuDensePlan exact_plan(const GpuDenseProblem& problem, const GpuModel& gpu) {
  constexpr Index rows = 16, steps = 1024;
  GpuDenseProblem same = problem;
  same.rows = rows, same.steps = steps;
  same.training = same.ragged = same.reset = true;  // restarts: as the problem has them
  same.every_state = cell_traits(problem.cell).states() > 1;
  same.sorted = false, same.parts = problem.head_size() == 1 ? 1 : problem.parts;
  const DenseAlgorithm algorithm =
      problem.algorithm != DenseAlgorithm::automatic ? problem.algorithm : plan_quickest(same, gpu).algorithm;
  GpuDenseProblem asked = problem;
  same.algorithm = asked.algorithm = algorithm, asked.parts = same.parts;
  const DenseRule rule = rule_by(algorithm, same, gpu);
  const std::optional<csp::Solution> shape = rule.refused.empty() ? rule.model.solve() : std::nullopt;
  if (!shape) fail(ErrorCode::unsupported, "{}", reason_of(rule));
  GpuDensePlan plan = rule_by(algorithm, asked, gpu).plan_of(*shape);
  plan.why += fmt::format("; exact mode: the shape for {} rows, whatever their number", rows);
  return plan;
}

GpuDensePlan plan_of_these_steps(const GpuDenseProblem& problem, const GpuModel& gpu) {
  const auto make = [&] {
    if (problem.exact) return exact_plan(problem, gpu);
    // Any algorithm can run backward over a tape. If warpgroups are requested but not possible, another one does it.
    if (problem.algorithm == DenseAlgorithm::warpgroup && problem.backward) {
      if (const auto plan = best_plan(dense_warpgroup_rule(problem, gpu))) return *plan;
      GpuDenseProblem open = problem;
      open.algorithm = DenseAlgorithm::automatic;
      return plan_quickest(open, gpu);
    }
    if (problem.algorithm != DenseAlgorithm::automatic) return plan_by(problem.algorithm, problem, gpu);
    const bool anything = problem.slots == 0 && problem.cluster == 0 && problem.groups == 0 && problem.parts == 0 &&
                          problem.direct < 0 && problem.shares < 0;
    const auto ranked = [&] { return plan_quickest(problem, gpu); };
    if (!anything) return ranked();
    return plan_as_measured<GpuDensePlan>(
        problem, gpu, [&] { return dense_rules(problem, gpu); }, ranked);
  };
  static PlanMemo<GpuDenseProblem, GpuModel, GpuDensePlan> memo;
  return measuring() ? make() : memo.get(problem, gpu, make);
}

}  // namespace

// The number of steps differs from batch to batch, and a search takes milliseconds: plan for the next power of two.
// Times are proportional to the steps, so the ranking of plans is the same.
GpuDensePlan plan_gpu_dense(const GpuDenseProblem& problem, const GpuModel& gpu) {
  check_dense_problem(problem);
  if (measuring()) return plan_of_these_steps(problem, gpu);
  GpuDenseProblem alike = problem;
  alike.steps = static_cast<Index>(std::bit_ceil(static_cast<std::uint64_t>(problem.steps)));
  GpuDensePlan plan = plan_of_these_steps(alike, gpu);
  plan.microseconds *= static_cast<double>(problem.steps) / static_cast<double>(alike.steps);
  return plan;
}

}  // namespace penstock::plan
