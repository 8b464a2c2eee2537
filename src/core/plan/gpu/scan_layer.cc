#include "plan/gpu/scan_layer.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/check.h"
#include "plan/gpu/product.h"
#include "plan/gpu/scan_layer_rules.h"
#include "plan/gpu/scan_rules.h"
#include "plan/tuning.h"

namespace penstock::plan {
namespace {

double flops_of(const GpuLayerProblem& problem) {
  const GpuScanProblem& scan = problem.scan;
  return 2.0 * static_cast<double>(scan.rows) * static_cast<double>(scan.steps) *
         static_cast<double>(scan.gates * scan.channels) * static_cast<double>(problem.input);
}

double product_bytes(const GpuLayerProblem& problem) {
  const GpuScanProblem& scan = problem.scan;
  return static_cast<double>(scan.rows) * static_cast<double>(scan.steps) *
         static_cast<double>(problem.input + scan.gates * scan.channels) * size_of(scan.storage);
}

/// Returns the microseconds of the input product.
double product_time(const GpuLayerProblem& problem, const GpuModel& gpu) {
  const GpuScanProblem& scan = problem.scan;
  if (scan.storage == Storage::f32 && !problem.tf32) {
    GpuProductProblem product{.m = scan.rows * scan.steps, .n = scan.gates * scan.channels, .k = problem.input};
    product.b_transposed = product.one_split = true;
    return plan_gpu_product(product, gpu).cycles / gpu.costs.common.clock;
  }
  const double rate = problem.tf32 ? gpu.costs.common.tf32 : gpu.costs.common.halves;
  constexpr int aligned = 16;
  const double more = problem.input_alignment < aligned ? gpu.costs.common.unaligned : 0;
  return more + std::max({static_cast<double>(problem.input) * gpu.costs.common.inputs, flops_of(problem) / rate,
                          product_bytes(problem) / gpu.costs.common.bytes});
}

/// Returns the microseconds of a separate product and the recurrence after it.
double separate_time(const GpuLayerProblem& problem, const GpuScanPlan& plan, const GpuModel& gpu) {
  return gpu.costs.common.product_launch + product_time(problem, gpu) + scan_microseconds(plan, problem.scan, gpu);
}

GpuScanPlan asked_for_fused(const GpuLayerProblem& problem, const GpuModel& gpu) {
  if (problem.scan.backward) return plan_gpu_scan(problem.scan, gpu);  // throws with the reason
  std::optional<GpuScanPlan> plan = best_plan(fused_layer_rule(problem, gpu));
  if (!plan) {
    fail(ErrorCode::unsupported,
         "the fused algorithm keeps the weights of a channel in shared memory: {} gates of {} inputs and a chunk of x "
         "need "
         "more than the {} KB of a block of {}; ask for scan or direct",
         problem.scan.gates, problem.input, gpu.block_bytes / 1024, gpu.name);
  }
  plan->why = "asked for";
  return *plan;
}

GpuScanPlan asked_for_epilogue(const GpuLayerProblem& problem, const GpuModel& gpu) {
  if (problem.scan.backward) return plan_gpu_scan(problem.scan, gpu);  // throws with the reason
  const Rule<GpuScanPlan> rule = epilogue_layer_rule(problem, gpu);
  std::optional<GpuScanPlan> plan = best_plan(rule);
  if (!plan) {
    fail(ErrorCode::unsupported, "there is no plan of the epilogue algorithm: {}; ask for another algorithm",
         fmt::join(conflict_of(rule), ", "));
  }
  plan->why = "asked for";
  return *plan;
}

}  // namespace

std::vector<GpuScanPlan> fused_plans(const GpuLayerProblem& problem, const GpuModel& gpu) {
  std::map<std::pair<int, Index>, GpuScanPlan> best;  // by vector and tiles of channels
  for (GpuScanPlan& plan : best_plans(fused_layer_rule(problem, gpu), csp::largest)) {
    plan.why = fmt::format("estimated at {:.0f} us", plan.microseconds);
    best.try_emplace({plan.vector, plan.channel_tiles(problem.scan.channels)}, std::move(plan));
  }
  std::vector<GpuScanPlan> plans;
  for (auto& [shape, plan] : best) plans.push_back(std::move(plan));
  std::ranges::stable_sort(plans, {}, &GpuScanPlan::microseconds);
  return plans;
}

namespace {

GpuScanPlan choose_algorithm(const GpuLayerProblem& problem, const GpuModel& gpu) {
  require_argument(problem.input >= 1 && problem.input <= GpuScanProblem::max_size, "input", problem.input, "1 to {}",
                   GpuScanProblem::max_size);
  if (problem.scan.algorithm == ScanAlgorithm::fused) return asked_for_fused(problem, gpu);
  if (problem.scan.algorithm == ScanAlgorithm::epilogue) return asked_for_epilogue(problem, gpu);
  if (problem.needs_one_launch && problem.scan.algorithm == ScanAlgorithm::automatic) {
    const std::optional<GpuScanPlan> fused = best_plan(fused_layer_rule(problem, gpu));
    std::optional<GpuScanPlan> epilogue = best_plan(epilogue_layer_rule(problem, gpu));
    if (!epilogue || (fused && fused->microseconds <= epilogue->microseconds)) return asked_for_fused(problem, gpu);
    epilogue->why = "there is no memory for gates";
    return *epilogue;
  }
  GpuScanPlan separate = plan_gpu_scan(problem.scan, gpu);
  if (problem.scan.backward) return separate;
  separate.microseconds = separate_time(problem, separate, gpu);
  if (problem.scan.algorithm != ScanAlgorithm::automatic) return separate;
  const std::string apart =
      fmt::format("the product by itself with {} at {:.0f}", to_string(separate.algorithm), separate.microseconds);
  GpuScanPlan best = separate;
  std::string others;
  const auto consider = [&](std::optional<GpuScanPlan> plan, std::string_view name, std::string_view none) {
    if (!plan) {
      others += fmt::format("; {}", none);
    } else if (plan->microseconds < best.microseconds) {
      best = *plan;
      best.why = fmt::format("estimated at {:.0f} us, and {}", plan->microseconds, apart);
    } else {
      others += fmt::format("; {} estimated at {:.0f} us", name, plan->microseconds);
    }
  };
  consider(best_plan(fused_layer_rule(problem, gpu)), "fused", "one launch for all cannot hold the weights");
  const Rule<GpuScanPlan> epilogue = epilogue_layer_rule(problem, gpu);
  if (epilogue.refused.empty()) consider(best_plan(epilogue), "epilogue", "no shape of the epilogue algorithm fits");
  if (best.algorithm == separate.algorithm) {
    best.why += fmt::format("; with the product before it estimated at {:.0f} us{}", separate.microseconds, others);
  }
  return best;
}

}  // namespace

std::vector<Rule<GpuScanPlan>> layer_rules(const GpuLayerProblem& problem, const GpuModel& gpu) {
  std::vector<Rule<GpuScanPlan>> rules;
  rules.push_back(fused_layer_rule(problem, gpu));
  if (Rule<GpuScanPlan> epilogue = epilogue_layer_rule(problem, gpu); epilogue.refused.empty()) {
    rules.push_back(std::move(epilogue));
  }
  for (Rule<GpuScanPlan>& rule : scan_rules(problem.scan, gpu)) {
    rule.plan_of = [problem, gpu, recurrence = rule.plan_of](const csp::Solution& solution) {
      GpuScanPlan plan = recurrence(solution);
      plan.microseconds = separate_time(problem, plan, gpu);
      return plan;
    };
    rules.push_back(std::move(rule));
  }
  return rules;
}

GpuScanPlan plan_gpu_layer(const GpuLayerProblem& problem, const GpuModel& gpu) {
  const auto ranked = [&] { return choose_algorithm(problem, gpu); };
  const auto make = [&] {
    const bool one_way =
        problem.scan.algorithm != ScanAlgorithm::automatic || problem.scan.backward || problem.needs_one_launch;
    if (one_way) return ranked();
    return plan_as_measured<GpuScanPlan>(
        problem, gpu, [&] { return layer_rules(problem, gpu); }, ranked);
  };
  static PlanMemo<GpuLayerProblem, GpuModel, GpuScanPlan> memo;
  return measuring() ? make() : memo.get(problem, gpu, make);
}

}  // namespace penstock::plan
