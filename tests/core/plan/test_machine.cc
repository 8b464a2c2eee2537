// Chips that can be planned for, their costs as data, and rules that hold on all of them.

#include "plan/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/explain.h"
#include "plan/gpu/dense_rules.h"
#include "plan/gpu/product_rules.h"
#include "plan/gpu/scan_layer_rules.h"
#include "plan/gpu/scan_rules.h"
#include "support/expect_error.h"

namespace penstock::plan {
namespace {

using testing::HasSubstr;

TEST(Machine, ChipsAreFoundByName) {
  EXPECT_EQ(named_gpu("h100").architecture(), 90);
  EXPECT_EQ(named_gpu("RTX 4090").name, named_gpu("rtx-4090").name);
  EXPECT_EQ(named_gpu("4090").multiprocessors, 128);
  EXPECT_EQ(named_gpu("sm_120").name, "RTX 5090");
  for (const int architecture : {80, 86, 89, 90, 100, 120}) {
    EXPECT_EQ(named_gpu(fmt::format("sm_{}", architecture)).architecture(), architecture);
  }
  test::expect_error(ErrorCode::invalid_argument, "chip must be one of A100 (sm_80), RTX 3090 (sm_86)",
                     [] { named_gpu("gtx 1080"); });
}

/// The H200 is the chip that costs were measured on: they are the defaults.
TEST(Machine, CostsFollowTheChip) {
  EXPECT_EQ(named_gpu("h200").costs, GpuCosts{});
  const GpuCosts h100 = named_gpu("h100").costs, b200 = named_gpu("b200").costs;
  EXPECT_NEAR(h100.common.bytes, GpuCosts{}.common.bytes * 3.35 / 4.8, 1);
  EXPECT_EQ(h100.common.halves, GpuCosts{}.common.halves);
  EXPECT_GT(b200.common.halves, 2 * h100.common.halves);
}

TEST(Machine, UnknownChipsAreLikeTheNearest) {
  GpuModel gpu = named_gpu("a100");
  gpu.name = "Some GPU", gpu.multiprocessors = 54, gpu.bandwidth = 0, gpu.clock_mhz = 0;
  gpu.costs = {};
  fill_in(gpu);
  EXPECT_NEAR(gpu.bandwidth, named_gpu("a100").bandwidth / 2, 1e6);
  EXPECT_NEAR(gpu.costs.common.halves, named_gpu("a100").costs.common.halves / 2, 1);
  gpu.name = "NVIDIA H200", gpu.compute_major = 9, gpu.compute_minor = 0;
  fill_in(gpu);
  EXPECT_EQ(gpu.costs, GpuCosts{});
}

TEST(Costs, GoThroughJson) {
  GpuCosts costs;
  costs.common.launch = 2.5, costs.team.slot = 123, costs.host.copy = 7, costs.wavefront.chunk = 9;
  GpuCosts read;
  read_costs(costs_json(costs), read);
  EXPECT_EQ(read, costs);
  CpuCosts cpu, cpu_read;
  cpu.sharing = 0.75;
  read_costs(costs_json(cpu), cpu_read);
  EXPECT_EQ(cpu_read, cpu);
  read_costs(R"({"launch": 4})", read);
  EXPECT_EQ(read.common.launch, 4);
  EXPECT_EQ(read.team.slot, 123) << "what is not named stays";
}

TEST(Costs, RefuseWhatIsNone) {
  GpuCosts costs;
  test::expect_error(ErrorCode::bad_input, "costs must be one JSON object", [&] { read_costs("[1]", costs); });
  test::expect_error(ErrorCode::bad_input, "there is no 'lunch'", [&] { read_costs(R"({"lunch": 1})", costs); });
  test::expect_error(ErrorCode::bad_input, "'launch' must be a positive number, not -1",
                     [&] { read_costs(R"({"tf32": 1, "launch": -1})", costs); });
  EXPECT_EQ(costs, GpuCosts{}) << "nothing is taken of a text that is refused";
}

GpuDenseProblem dense(const char* cell, Index rows, Index heads, Index head) {
  GpuDenseProblem problem;
  problem.cell = cell, problem.rows = rows, problem.steps = 1024;
  problem.heads = heads, problem.hidden = heads * head;
  return problem;
}

GpuLayerProblem layer(Index rows, Index steps, Index input, Index hidden) {
  GpuLayerProblem problem;
  problem.scan = {.rows = rows, .steps = steps, .channels = hidden, .gates = 2, .read_back = 2, .computed = true};
  problem.input = input;
  return problem;
}

/// How often the search for a rule's best plan asks whether to stop, which it does every thousand steps.
template <class Plan>
int thousands_of_steps(Rule<Plan> rule) {
  if (!rule.refused.empty()) return 0;
  int asked = 0;
  rule.model.stop_when([&] {
    ++asked;
    return false;
  });
  best_plan(rule);
  return asked;
}

TEST(Rules, SolveOnEveryChip) {
  for (const GpuModel& gpu : known_gpus()) {
    EXPECT_TRUE(best_plan(warp_product_rule({.m = 4096, .n = 512, .k = 256}, gpu))) << gpu.name;
    EXPECT_EQ(best_plan(warpgroup_product_rule({.m = 4096, .n = 512, .k = 256}, gpu)).has_value(),
              gpu.architecture() == 90);
    EXPECT_TRUE(best_plan(fused_layer_rule(layer(1, 64, 64, 128), gpu))) << gpu.name;
    for (const char* cell : {"elman", "gru", "lstm", "slstm"}) {
      EXPECT_TRUE(best_plan(dense_head_rule(dense(cell, 16, 12, 64), gpu))) << gpu.name;
      const DenseRule cluster = dense_cluster_rule(dense(cell, 16, 1, 384), gpu);
      EXPECT_EQ(best_plan(cluster).has_value(), gpu.has_clusters()) << gpu.name << " " << cell;
      EXPECT_TRUE(best_plan(dense_chip_rule(dense(cell, 16, 1, 384), gpu))) << gpu.name << " " << cell;
      EXPECT_TRUE(best_plan(dense_step_rule(dense(cell, 16, 1, 4096), gpu))) << gpu.name << " " << cell;
    }
    for (const Index steps : {16, 4096}) {
      EXPECT_LE(plan_gpu_scan(layer(8, steps, 64, 1000).scan, gpu).shared, gpu.block_bytes);
    }
  }
}

TEST(Rules, PlansStayWithinTheChip) {
  for (const GpuModel& gpu : known_gpus()) {
    const std::optional<GpuDensePlan> cluster = best_plan(dense_cluster_rule(dense("lstm", 16, 1, 512), gpu));
    if (!cluster) continue;
    EXPECT_LE(cluster->cluster, gpu.cluster) << gpu.name;
    EXPECT_LE(cluster->shared, gpu.block_bytes) << gpu.name;
    EXPECT_EQ(cluster->grid % cluster->cluster, 0);
  }
}

/// Plans are made while programs run: milliseconds at most (bench/kernels/rule_times.cc). Steps of a search do not
/// depend on what else the machine does, as times do.
TEST(Rules, SolveQuickly) {
  constexpr int most = 2;  // fewer than 3,072 steps
  for (const char* const chip : {"h200", "sm_100", "a100"}) {
    const GpuModel gpu = named_gpu(chip);
    for (const char* const cell : {"elman", "gru", "lstm", "slstm"}) {
      for (const Index rows : {1, 37, 256, 1000}) {
        for (const Index head : {64, 509, 768, 1021, 1500, 2048}) {
          GpuDenseProblem problem = dense(cell, rows, 1, head);
          for (const Storage storage : {Storage::f32, Storage::bf16}) {
            problem.storage = storage, problem.training = true, problem.backward = !problem.backward;
            SCOPED_TRACE(problem.cell + fmt::format(" of {} units, {} rows, on {}", head, rows, chip));
            EXPECT_LE(thousands_of_steps(dense_head_rule(problem, gpu)), most);
            EXPECT_LE(thousands_of_steps(dense_cluster_rule(problem, gpu)), most);
            EXPECT_LE(thousands_of_steps(dense_chip_rule(problem, gpu)), most);
            EXPECT_LE(thousands_of_steps(dense_step_rule(problem, gpu)), most);
          }
        }
      }
    }
    for (const Index k : {100, 1024, 64'000}) {
      EXPECT_LE(thousands_of_steps(warp_product_rule({.m = 64'000, .n = 200, .k = k}, gpu)), most);
      EXPECT_LE(thousands_of_steps(warpgroup_product_rule({.m = 4096, .n = 1021, .k = k}, gpu)), most);
    }
    for (const Index steps : {16, 1000, 16'384}) {
      EXPECT_LE(thousands_of_steps(fused_layer_rule(layer(64, steps, 7, 100), gpu)), most);
      EXPECT_LE(thousands_of_steps(chunked_scan_rule(layer(64, steps, 7, 1021).scan, gpu)), most);
    }
  }
}

TEST(Rules, SayWhichConstraintsExcludeEachOther) {
  const DenseRule large = dense_head_rule(dense("lstm", 16, 1, 256), named_gpu("rtx 3090"));
  ASSERT_FALSE(best_plan(large));
  EXPECT_THAT(conflict_of(large), testing::ElementsAre(HasSubstr("shared memory holds what registers do not: ")));
  const DenseRule none = dense_cluster_rule(dense("lstm", 16, 1, 512), named_gpu("a100"));
  EXPECT_THAT(conflict_of(none),
              testing::ElementsAre(HasSubstr("need a chip of sm_90 or later, and A100 is of sm_80")));
}

TEST(Rules, ChipsAreRefusedWithTheConstraintThatBroke) {
  const DenseRule large = dense_chip_rule(dense("lstm", 16, 1, 4096), named_gpu("rtx 3090"));
  ASSERT_FALSE(best_plan(large));
  EXPECT_THAT(reason_of(large), HasSubstr("does not fit into the registers and shared memory of the 82"));
  EXPECT_FALSE(conflict_of(large).empty());
  const PlanReport report = explain(dense("lstm", 16, 1, 4096), named_gpu("rtx 3090"));
  EXPECT_EQ(report.algorithm, "step");
  EXPECT_EQ(report.alternatives[2].name, "chip");
  EXPECT_EQ(report.alternatives[2].conflict, conflict_of(large));
}

TEST(Explain, NamesWhatLostAndWhatCannotBe) {
  const PlanReport on_h100 = explain(dense("elman", 16, 1, 768), named_gpu("h100"));
  EXPECT_EQ(on_h100.algorithm, "cluster");
  EXPECT_GT(on_h100.microseconds, 500);
  ASSERT_FALSE(on_h100.alternatives.empty());
  EXPECT_EQ(on_h100.alternatives[0].name, "head");
  EXPECT_FALSE(on_h100.alternatives[0].possible);
  EXPECT_THAT(on_h100.alternatives[0].reason, HasSubstr("at most 256 units, not of 768"));
  const PlanReport small = explain(layer(1, 1024, 64, 128), named_gpu("h200"));
  EXPECT_EQ(small.algorithm, "scan");
  ASSERT_EQ(small.alternatives.size(), 3u);
  for (const PlanAlternative& other : small.alternatives) {
    const bool possible = other.name != "epilogue";
    EXPECT_EQ(other.possible, possible) << other.name;
    EXPECT_THAT(other.reason, HasSubstr(possible ? "times as long" : "bf16 and f16, not f32")) << other.name;
  }
  const PlanReport product = explain(GpuProductProblem{.m = 64'000, .n = 200, .k = 100}, named_gpu("a100"));
  EXPECT_EQ(product.algorithm, "warps");
  EXPECT_THAT(product.alternatives.at(0).reason, HasSubstr("sm_90, and A100 is of sm_80"));
}

/// For each algorithm without a plan for large heads, the explanation names the largest heads that have one, and no
/// more.
TEST(Explain, SaysWhichHeadsWouldFit) {
  for (const char* const chip : {"h100", "a100", "rtx 4090"}) {
    const GpuModel gpu = named_gpu(chip);
    const GpuDenseProblem large = dense("lstm", 16, 1, 4096);
    for (const PlanAlternative& other : explain(large, gpu).alternatives) {
      if (other.possible) continue;
      SCOPED_TRACE(fmt::format("{}, {}: {}", chip, other.name, other.reason));
      const std::string before = "; heads of up to ";
      const std::size_t at = other.reason.find(before);
      if (other.name == "cluster" && !gpu.has_clusters()) {
        EXPECT_EQ(at, std::string::npos) << "whatever its size";
        continue;
      }
      ASSERT_NE(at, std::string::npos);
      const Index units = std::stoll(other.reason.substr(at + before.size()));
      GpuDenseProblem asked = dense("lstm", 16, 1, units);
      for (const DenseAlgorithm algorithm : {DenseAlgorithm::head, DenseAlgorithm::cluster, DenseAlgorithm::chip}) {
        if (to_string(algorithm) == other.name) asked.algorithm = algorithm;
      }
      EXPECT_EQ(to_string(plan_gpu_dense(asked, gpu).algorithm), other.name);
      asked.hidden += 8;
      test::expect_error(ErrorCode::unsupported, other.name == "chip" ? "multiprocessors" : "recurrent matrix",
                         [&] { plan_gpu_dense(asked, gpu); });
    }
  }
}

TEST(Explain, SaysOfCpusWhyAScanIsNotCut) {
  Problem problem;
  problem.cell = &cell_traits("mingru");
  problem.rows = 8, problem.steps = 100, problem.hidden = 256, problem.threads = 4, problem.input = 64;
  const PlanReport report = explain(problem, CpuModel{});
  EXPECT_EQ(report.algorithm, "sequential");
  EXPECT_GT(report.microseconds, 0);
  ASSERT_EQ(report.alternatives.size(), 1u);
  EXPECT_EQ(report.alternatives[0].name, "scan");
  EXPECT_THAT(report.alternatives[0].reason, testing::HasSubstr("rows and channels occupy the threads"));
  EXPECT_FALSE(report.alternatives[0].possible);
}

}  // namespace
}  // namespace penstock::plan
