#include "plan/explain.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/check.h"
#include "base/plural.h"
#include "plan/cpu/rules.h"
#include "plan/gpu/dense_rules.h"
#include "plan/gpu/product_rules.h"
#include "plan/gpu/scan_layer_rules.h"
#include "plan/gpu/sorted_rows.h"

namespace penstock::plan {
namespace {

std::string pass_of(bool backward) { return backward ? "backward" : "forward"; }

/// Returns the outcome of trying one algorithm.
template <class Make>
PlanAlternative attempt(std::string name, const Make& make) {
  PlanAlternative alternative{.name = std::move(name)};
  try {
    const auto plan = make();
    alternative.possible = true;
    alternative.microseconds = plan.microseconds;
    alternative.text = plan.explain();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    alternative.reason = error.what();
  }
  return alternative;
}

template <class Plan>
PlanAlternative attempt(const Rule<Plan>& rule) {
  PlanAlternative alternative{.name = rule.name};
  if (const std::optional<Plan> plan = best_plan(rule)) {
    alternative.possible = true;
    alternative.microseconds = plan->microseconds;
    alternative.text = plan->explain();
  } else {
    if (rule.refused.empty()) alternative.conflict = conflict_of(rule);
    alternative.reason = reason_of(rule);
  }
  return alternative;
}

/// Compares the alternatives with the chosen plan.
void compare(PlanReport& report) {
  for (PlanAlternative& other : report.alternatives) {
    if (!other.possible || !other.reason.empty()) continue;
    if (other.microseconds > 0 && report.microseconds > 0) {
      const double ratio = other.microseconds / report.microseconds;
      other.reason = ratio >= 1 ? fmt::format("estimated to take {:.2f} times as long", ratio)
                                : fmt::format("estimated to take {:.2f} times as long, but not preferred", ratio);
    } else {
      other.reason = "possible, not preferred";
    }
  }
}

template <class Plan>
void choose(PlanReport& report, std::string algorithm, const Plan& plan) {
  report.algorithm = std::move(algorithm);
  report.plan = plan.explain();
  report.why = plan.why;
  report.microseconds = plan.microseconds;
  std::erase_if(report.alternatives, [&](const PlanAlternative& other) { return other.name == report.algorithm; });
  compare(report);
}

bool has_plan(GpuDenseProblem problem, Index head_size, const GpuModel& gpu, const std::string& name) {
  problem.hidden = problem.heads * head_size;
  for (const DenseRule& rule : dense_rules(problem, gpu)) {
    if (rule.name == name) return rule.refused.empty() && rule.model.first().has_value();
  }
  return false;
}

/// Returns a text with the largest head size, a multiple of eight, for which a rule without a plan would have one. It
/// is empty if the size is not the reason.
std::string heads_that_fit(const GpuDenseProblem& problem, const GpuModel& gpu, const std::string& name) {
  constexpr Index eight = 8;
  Index fits = 0, fails = (problem.head_size() + eight - 1) / eight;
  while (fails - fits > 1) {
    const Index middle = (fits + fails) / 2;
    (has_plan(problem, middle * eight, gpu, name) ? fits : fails) = middle;
  }
  return fits == 0 ? "" : fmt::format("; heads of up to {} units fit", fits * eight);
}

}  // namespace

std::string describe(const GpuModel& gpu) { return fmt::format("{} (sm_{})", gpu.name, gpu.architecture()); }

std::string describe(const CpuModel& cpu) {
  return fmt::format("CPU ({}, {} KiB of second-level cache a core)", cpu.isa.empty() ? "baseline" : cpu.isa,
                     cpu.l2_bytes / 1024);
}

namespace {

/// Returns "; steps with 32, 16 rows left have plans of their own", or an empty text.
std::string plans_of_fewer_rows(const GpuDenseProblem& problem, const GpuModel& gpu) {
  const std::vector<Index> counts = rows_worth_a_plan(problem, gpu);
  if (counts.size() < 2) return {};
  return fmt::format("; steps with {} rows left have plans of their own",
                     fmt::join(std::next(counts.begin()), counts.end(), ", "));
}

}  // namespace

PlanReport explain(const GpuDenseProblem& problem, const GpuModel& gpu) {
  PlanReport report;
  report.work =
      fmt::format("recurrence of {}, {}{}: B = {}, T = {}, {} x {} units, {}", problem.cell, pass_of(problem.backward),
                  problem.training ? " with a tape" : "", problem.rows, problem.steps, problem.heads,
                  problem.head_size(), problem.tf32 ? "tf32" : to_string(problem.storage));
  report.machine = describe(gpu);
  // In exact mode the plan is that of another batch.
  const std::vector<DenseRule> rules = problem.exact ? std::vector<DenseRule>() : dense_rules(problem, gpu);
  for (const DenseRule& rule : rules) {
    report.alternatives.push_back(attempt(rule));
    PlanAlternative& one = report.alternatives.back();
    if (!one.possible) one.reason += heads_that_fit(problem, gpu, rule.name);
  }
  try {
    const GpuDensePlan plan = plan_gpu_dense(problem, gpu);
    choose(report, std::string(to_string(plan.algorithm)), plan);
    if (problem.sorted) report.plan += plans_of_fewer_rows(problem, gpu);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    report.why = error.what();
  }
  return report;
}

PlanReport explain(const GpuLayerProblem& problem, const GpuModel& gpu) {
  const GpuScanProblem& scan = problem.scan;
  PlanReport report;
  report.work =
      fmt::format("{} of a scan cell, {}{}: B = {}, T = {}, {} -> {} units, {}", scan.backward ? "recurrence" : "layer",
                  pass_of(scan.backward), !scan.backward && problem.keep_gates ? " with a tape" : "", scan.rows,
                  scan.steps, problem.input, scan.channels, to_string(scan.storage));
  report.machine = describe(gpu);
  for (const ScanAlgorithm algorithm :
       {ScanAlgorithm::direct, ScanAlgorithm::epilogue, ScanAlgorithm::fused, ScanAlgorithm::scan}) {
    GpuLayerProblem one = problem;
    one.scan.algorithm = algorithm;
    report.alternatives.push_back(attempt(std::string(to_string(algorithm)), [&] { return plan_gpu_layer(one, gpu); }));
    if (algorithm != ScanAlgorithm::fused || scan.backward || report.alternatives.back().possible) continue;
    report.alternatives.back().conflict = conflict_of(fused_layer_rule(problem, gpu));
  }
  const GpuScanPlan plan = plan_gpu_layer(problem, gpu);
  choose(report, std::string(to_string(plan.algorithm)), plan);
  return report;
}

PlanReport explain(const GpuProductProblem& problem, const GpuModel& gpu) {
  PlanReport report;
  report.work = fmt::format("fp32 GEMM: {} x {} x {}", problem.m, problem.n, problem.k);
  report.machine = describe(gpu);
  for (const ProductRule& rule : product_rules(problem, gpu)) report.alternatives.push_back(attempt(rule));
  const GpuProductPlan plan = plan_gpu_product(problem, gpu);
  choose(report, plan.pairs ? "pairs" : plan.warpgroups ? "warpgroups" : "warps", plan);
  return report;
}

PlanReport explain_library_product(Index m, Index n, Index k, Storage storage, bool tf32, const GpuModel& gpu) {
  const auto rows = static_cast<double>(m), columns = static_cast<double>(n), inner = static_cast<double>(k);
  const double size = size_of(storage);
  const double rate =
      storage == Storage::f32 ? (tf32 ? gpu.costs.common.tf32 : gpu.costs.common.tf32 / 7) : gpu.costs.common.halves;
  PlanReport report;
  report.work = fmt::format("product: {} x {} x {}, {}", m, n, k, tf32 ? "tf32" : to_string(storage));
  report.machine = describe(gpu);
  report.algorithm = report.plan = "cuBLASLt";
  report.why = "fastest for 16-bit GEMMs, and for fp32 GEMMs outside the range of Penstock's kernels";
  report.microseconds = gpu.costs.common.product_launch +
                        std::max({inner * gpu.costs.common.inputs, 2 * rows * columns * inner / rate,
                                  size * (rows * inner + inner * columns + rows * columns) / gpu.costs.common.bytes});
  return report;
}

PlanReport explain(const Problem& problem, const CpuModel& cpu) {
  PlanReport report;
  report.work = fmt::format("layer of {}: B = {}, T = {}, {} -> {} units", problem.cell->info.name, problem.rows,
                            problem.steps, problem.input, problem.hidden);
  if (problem.heads > 1) report.work += fmt::format(" in {} heads", problem.heads);
  report.machine = fmt::format("{}, {}", describe(cpu), counted(problem.threads, "thread"));
  for (const Rule<Plan>& rule : cpu_rules(problem, cpu)) report.alternatives.push_back(attempt(rule));
  const Plan plan = make_plan(problem, cpu);
  choose(report, std::string(to_string(plan.algorithm)), plan);
  return report;
}

}  // namespace penstock::plan
