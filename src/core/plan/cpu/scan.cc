// Scan cells on a CPU: independent rows and channels from the first step to the last, or chunks of T.

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/plural.h"
#include "plan/cpu/pays_for_team.h"
#include "plan/cpu/rules.h"

namespace penstock::plan {
namespace {

/// Steps of a chunk of the parallel scan. It is fixed: results must not depend on the number of threads. It is long
/// enough for the pass over the summaries of chunks to be negligible, and short enough for 8,192 steps to occupy eight
/// threads.
constexpr Index kChunk = 1024;

Index channel_groups(const Problem& problem) { return std::max<Index>(1, problem.hidden / problem.channels_each); }

/// Returns the time of a scan in chunks as a multiple of a sequential one on one thread.
double chunk_pass(const Problem& problem, const CpuCosts& costs) {
  constexpr Index cache_line = 16;  // floats
  return problem.hidden < cache_line ? costs.narrow_pass : costs.chunk_pass;
}

/// Returns the number of threads from which chunks are faster than rows and channels, which occupy fewer threads.
Index quicker_from(const Problem& problem, const CpuCosts& costs) {
  const auto occupied = static_cast<double>(problem.rows * channel_groups(problem));
  return static_cast<Index>(std::ceil(chunk_pass(problem, costs) * occupied));
}

/// Returns the estimated time with this number of busy threads.
double scan_microseconds(const Problem& problem, const CpuCosts& costs, Index threads) {
  const auto values = static_cast<double>(problem.rows * problem.steps) * static_cast<double>(problem.hidden);
  const double products =
      values * static_cast<double>(problem.cell->info.gates * problem.input) / multiply_adds(costs, problem.int8);
  return (products + values / costs.gates) / static_cast<double>(threads);
}

/// Returns why chunks would take longer than rows and channels; empty if they would not.
std::string why_not_in_chunks(const Problem& problem, const CpuCosts& costs) {
  if (problem.rows * channel_groups(problem) >= problem.threads) {
    return "rows and channels occupy the threads; a chunked scan would compute gates twice";
  }
  if (problem.steps < 2 * kChunk) return fmt::format("T must be at least {} to cut it into chunks", 2 * kChunk);
  if (!pays_for_team(scan_microseconds(problem, costs, 1))) return "the call is too short to share";
  const Index fewest = quicker_from(problem, costs);
  if (problem.threads >= fewest) return {};
  return fmt::format("a chunked scan computes gates twice and needs at least {} to be faster",
                     counted(fewest, "thread"));
}

std::string why_sequential(const Problem& problem, const CpuCosts& costs) {
  if (problem.algorithm == Algorithm::sequential) return "asked for";
  if (problem.exact) return "exact mode: one order of operations";
  const std::string why = why_not_in_chunks(problem, costs);
  return why.empty() ? "chunks would be quicker" : why;
}

Rule<Plan> in_chunks(const Problem& problem, const CpuCosts& costs, Scope scope) {
  Rule<Plan> rule{.name = "scan"};
  if (problem.exact) {
    rule.refused = "chunks round differently where a sequence is split, which exact mode forbids";
    return rule;
  }
  if (problem.algorithm == Algorithm::sequential) {
    rule.refused = "sequential was asked for";
    return rule;
  }
  const bool asked = problem.algorithm == Algorithm::scan;
  if (!asked && scope == Scope::worthwhile) rule.refused = why_not_in_chunks(problem, costs);
  if (!rule.refused.empty()) return rule;
  // Any free thread takes the next chunk: rows need not be split into parts.
  const auto threads = rule.var("threads", csp::range(1, problem.threads));
  rule.model.maximise(threads);
  rule.plan_of = [=](const csp::Solution& solution) {
    Plan plan;
    plan.algorithm = Algorithm::scan;
    plan.chunk = kChunk;
    plan.row_parts = static_cast<int>(solution[threads]);
    plan.microseconds = chunk_pass(problem, costs) * scan_microseconds(problem, costs, plan.row_parts);
    plan.why = asked ? "asked for" : "too few rows and channels to occupy the threads, T long enough";
    return plan;
  };
  return rule;
}

/// Returns the number of threads with more work than the cost of starting them. Short sequences run on one thread.
Index worthwhile_threads(const Problem& problem, const CpuCosts& costs) {
  const double alone = scan_microseconds(problem, costs, 1);
  if (!pays_for_team(alone)) return 1;
  const double threads = std::min(alone / (costs.product_grain / costs.multiply_adds), 1e6);
  return std::clamp<Index>(static_cast<Index>(threads), 1, problem.threads);
}

Rule<Plan> from_first_to_last(const Problem& problem, const CpuCosts& costs, Scope scope) {
  Rule<Plan> rule{.name = "sequential"};
  if (problem.algorithm == Algorithm::scan) {
    rule.refused = "a scan was asked for";
    return rule;
  }
  csp::Model& m = rule.model;
  const Index groups = channel_groups(problem);
  const auto row_parts = rule.var("row_parts", csp::range(1, std::min<Index>(problem.threads, problem.rows)));
  const auto channel_parts = rule.var("channel_parts", csp::range(1, problem.threads));
  m.require("there are so many threads", row_parts * channel_parts <= problem.threads);
  m.require("a thread has a cache line of channels", channel_parts <= groups);
  if (scope == Scope::worthwhile) {
    m.require("a thread has work that pays for it", row_parts * channel_parts <= worthwhile_threads(problem, costs));
  }
  m.maximise(row_parts * (problem.threads + 1) + channel_parts);
  rule.plan_of = [=](const csp::Solution& solution) {
    Plan plan;
    plan.row_parts = static_cast<int>(solution[row_parts]);
    plan.channel_parts = static_cast<int>(solution[channel_parts]);
    plan.microseconds = scan_microseconds(problem, costs, plan.threads());
    plan.why = why_sequential(problem, costs);
    return plan;
  };
  return rule;
}

}  // namespace

std::vector<Rule<Plan>> cpu_scan_rules(const Problem& problem, const CpuModel& cpu, Scope scope) {
  require(problem.algorithm != Algorithm::scan || !problem.exact, "{}", kScanIsNotExact);
  std::vector<Rule<Plan>> rules;
  rules.push_back(in_chunks(problem, cpu.costs, scope));
  rules.push_back(from_first_to_last(problem, cpu.costs, scope));
  return rules;
}

}  // namespace penstock::plan
