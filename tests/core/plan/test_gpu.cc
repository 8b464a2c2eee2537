// How recurrences and layers run on a GPU: what the planner chooses, what it refuses, and that it says why.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>

#include "plan/gpu/product.h"
#include "plan/gpu/scan_layer.h"
#include "plan/h200.h"
#include "support/expect_error.h"

namespace penstock::plan {
namespace {

using testing::HasSubstr;

GpuScanProblem scan(Index rows, Index steps, Index channels) {
  return {.rows = rows, .steps = steps, .channels = channels};
}

GpuLayerProblem layer(Storage storage, Index rows, Index steps, Index input, Index hidden) {
  GpuLayerProblem problem;
  problem.scan = scan(rows, steps, hidden);
  problem.scan.storage = storage;
  problem.scan.computed = true;
  problem.scan.read_back = 2;
  problem.scan.alignment = hidden % 8 == 0 ? 16 : size_of(storage);
  problem.input = input;
  return problem;
}

TEST(GpuScan, ShortSequencesAreRunByThreads) {
  EXPECT_EQ(plan_gpu_scan(scan(8, 1, 64), h200()).algorithm, ScanAlgorithm::direct);
  EXPECT_EQ(plan_gpu_scan(scan(8, 16, 1000), h200()).algorithm, ScanAlgorithm::direct);
  EXPECT_EQ(plan_gpu_scan(scan(8, 4096, 1000), h200()).algorithm, ScanAlgorithm::scan);
  EXPECT_THAT(plan_gpu_scan(scan(8, 16, 64), h200()).explain(), HasSubstr("scan estimated at 10 us"));
}

TEST(GpuScan, AlgorithmsCanBeAskedForByName) {
  GpuScanProblem problem = scan(3, 5000, 100);
  problem.algorithm = parse_scan_algorithm("direct");
  const GpuScanPlan direct = plan_gpu_scan(problem, h200());
  EXPECT_EQ(direct.algorithm, ScanAlgorithm::direct);
  EXPECT_EQ(direct.workspace_bytes(), 0);
  EXPECT_THAT(direct.explain(), HasSubstr("direct: "));
  EXPECT_THAT(direct.explain(), HasSubstr("asked for"));
  problem.steps = 2;
  problem.algorithm = parse_scan_algorithm("scan");
  EXPECT_EQ(plan_gpu_scan(problem, h200()).algorithm, ScanAlgorithm::scan);
  test::expect_error(ErrorCode::invalid_argument,
                     "algorithm must be one of auto, direct, epilogue, fused, scan, not \"quick\"",
                     [] { parse_scan_algorithm("quick"); });
  for (const ScanAlgorithm algorithm : {ScanAlgorithm::automatic, ScanAlgorithm::direct, ScanAlgorithm::epilogue,
                                        ScanAlgorithm::fused, ScanAlgorithm::scan}) {
    EXPECT_EQ(parse_scan_algorithm(to_string(algorithm)), algorithm);
  }
}

TEST(GpuScan, HasNothingToFuse) {
  GpuScanProblem problem = scan(3, 50, 100);
  problem.algorithm = ScanAlgorithm::fused;
  test::expect_error(ErrorCode::unsupported, "a recurrence by itself has no product to fuse",
                     [&] { plan_gpu_scan(problem, h200()); });
  GpuLayerProblem back = layer(Storage::f32, 3, 50, 10, 100);
  back.scan.algorithm = ScanAlgorithm::fused;
  back.scan.backward = true;
  test::expect_error(ErrorCode::unsupported, "a backward pass has no product to fuse",
                     [&] { plan_gpu_layer(back, h200()); });
}

/// Every step of every channel belongs to one thread of one block.
TEST(GpuScan, DirectPlansCoverAllChannels) {
  for (const Index rows : {1, 3, 1000}) {
    for (const Index channels : {1, 2, 31, 33, 100, 4096}) {
      for (const Storage storage : {Storage::f32, Storage::bf16}) {
        GpuScanProblem problem = scan(rows, 10, channels);
        problem.storage = storage;
        const GpuScanPlan plan = plan_gpu_scan(problem, h200());
        EXPECT_GE(plan.channel_tiles(channels) * plan.tile_channels(), channels);
        EXPECT_EQ(channels % plan.vector, 0);
        EXPECT_GE(plan.grid * plan.groups, rows * plan.channel_tiles(channels));
        EXPECT_LE(plan.threads(), 1024);
      }
    }
  }
}

TEST(GpuLayer, SmallLayersAreOneLaunch) {
  const GpuScanPlan plan = plan_gpu_layer(layer(Storage::f32, 1, 64, 64, 128), h200());
  EXPECT_EQ(plan.algorithm, ScanAlgorithm::fused);
  EXPECT_EQ(plan.workspace_bytes(), 0);
  EXPECT_THAT(plan.explain(), HasSubstr("fused: product, gates and recurrence in one launch"));
  EXPECT_THAT(plan.explain(), HasSubstr("the product by itself"));
}

/// Measured on an H200: a product of such inputs takes longer than the rest of the layer.
TEST(GpuLayer, SmallLayersOfUnalignedInputsAreOneLaunch) {
  GpuLayerProblem problem = layer(Storage::f32, 3, 26, 113, 192);
  problem.tf32 = true, problem.input_alignment = 4;
  EXPECT_EQ(plan_gpu_layer(problem, h200()).algorithm, ScanAlgorithm::fused);
  problem.input_alignment = 16;
  EXPECT_EQ(plan_gpu_layer(problem, h200()).algorithm, ScanAlgorithm::direct);
}

TEST(GpuLayer, LargeProductsAreLeftToTheLibrary) {
  const GpuScanPlan plan = plan_gpu_layer(layer(Storage::f32, 8, 4096, 1024, 1024), h200());
  EXPECT_EQ(plan.algorithm, ScanAlgorithm::scan);
  EXPECT_THAT(plan.explain(), HasSubstr("fused estimated at"));
}

TEST(GpuLayer, LargeProductsOfHalvesHaveTheRecurrenceAsEpilogue) {
  for (const int gates : {2, 3}) {
    GpuLayerProblem problem = layer(Storage::bf16, 8, 4096, 1024, 1024);
    problem.scan.gates = gates;
    const GpuScanPlan plan = plan_gpu_layer(problem, h200());
    EXPECT_EQ(plan.algorithm, ScanAlgorithm::epilogue);
    EXPECT_EQ(plan.chunk(), 128);
    EXPECT_EQ(plan.tiles, 8 * 32 * 1024 / plan.tile_channels());
    EXPECT_EQ(plan.grid, h200().multiprocessors);
    EXPECT_LE(plan.shared, h200().block_bytes);
    EXPECT_GT(plan.shared + epilogue_shared_bytes(plan, problem) / plan.depth, h200().block_bytes) << "one stage more";
    EXPECT_EQ(plan.workspace_bytes(), 256 + plan.tiles * plan.tile_channels() * 16);
    EXPECT_THAT(plan.explain(), HasSubstr("the recurrence as their epilogue: estimated at"));
    EXPECT_THAT(plan.explain(), HasSubstr("the product by itself with scan at"));
  }
}

/// Measured on an H200: docs/results/gpu.md.
TEST(GpuLayer, TheEpilogueIsTakenWhereItWasQuicker) {
  struct Size {
    Index rows, steps, inputs;
    int gates;
    ScanAlgorithm algorithm;
  };
  for (const Size& size :
       {Size{8, 1024, 1024, 2, ScanAlgorithm::epilogue}, Size{8, 1024, 1024, 3, ScanAlgorithm::epilogue},
        Size{64, 512, 512, 2, ScanAlgorithm::epilogue}, Size{64, 512, 512, 3, ScanAlgorithm::epilogue},
        Size{64, 512, 256, 2, ScanAlgorithm::epilogue}, Size{64, 512, 256, 3, ScanAlgorithm::epilogue},
        Size{16, 1024, 512, 2, ScanAlgorithm::epilogue}, Size{1, 4096, 1024, 2, ScanAlgorithm::scan},
        Size{1, 4096, 1024, 3, ScanAlgorithm::scan}}) {
    GpuLayerProblem problem = layer(Storage::bf16, size.rows, size.steps, size.inputs, size.inputs);
    problem.scan.gates = problem.scan.read_back = size.gates;
    problem.keep_gates = false;
    const GpuScanPlan plan = plan_gpu_layer(problem, h200());
    EXPECT_EQ(plan.algorithm, size.algorithm)
        << size.rows << " x " << size.steps << " x " << size.inputs << ", " << size.gates << " gates: " << plan.why;
  }
}

TEST(GpuLayer, AnEpilogueThatCannotBeHadSaysWhy) {
  const auto refused = [](const std::string& why, const auto& change, GpuModel gpu = h200()) {
    GpuLayerProblem problem = layer(Storage::bf16, 8, 4096, 1024, 1024);
    problem.scan.algorithm = ScanAlgorithm::epilogue;
    change(problem);
    test::expect_error(ErrorCode::unsupported, why, [&] { plan_gpu_layer(problem, gpu); });
    problem.scan.algorithm = ScanAlgorithm::automatic;
    if (problem.scan.backward) return;
    EXPECT_NE(plan_gpu_layer(problem, gpu).algorithm, ScanAlgorithm::epilogue);
  };
  GpuModel ampere = h200();
  ampere.name = "A100", ampere.compute_major = 8;
  refused(
      "are of sm_90, and A100 is of sm_80", [](GpuLayerProblem&) {}, ampere);
  refused("bf16 and f16, not f32", [](GpuLayerProblem& problem) { problem.scan.storage = Storage::f32; });
  refused("multiples of 16 bytes", [](GpuLayerProblem& problem) { problem.input = 1020; });
  refused("multiples of 16 bytes", [](GpuLayerProblem& problem) { problem.scan.channels = 1020; });
  refused("multiples of 16 bytes", [](GpuLayerProblem& problem) { problem.input_alignment = 8; });
  refused("multiples of 16 bytes", [](GpuLayerProblem& problem) { problem.scan.alignment = 8; });
  refused("a backward pass has no product to fuse", [](GpuLayerProblem& problem) { problem.scan.backward = true; });
}

TEST(GpuLayer, WithoutMemoryForGatesAllIsOneLaunch) {
  GpuLayerProblem problem = layer(Storage::bf16, 8, 4096, 1024, 1024);
  problem.needs_one_launch = true;
  EXPECT_EQ(plan_gpu_layer(problem, h200()).algorithm, ScanAlgorithm::epilogue);
  problem = layer(Storage::bf16, 1, 64, 64, 128);
  problem.needs_one_launch = true;
  EXPECT_EQ(plan_gpu_layer(problem, h200()).algorithm, ScanAlgorithm::fused);
}

TEST(GpuLayer, AlgorithmsCanBeAskedForByName) {
  for (const ScanAlgorithm algorithm :
       {ScanAlgorithm::direct, ScanAlgorithm::epilogue, ScanAlgorithm::fused, ScanAlgorithm::scan}) {
    GpuLayerProblem problem = layer(Storage::bf16, 8, 300, 96, 64);
    problem.scan.algorithm = algorithm;
    const GpuScanPlan plan = plan_gpu_layer(problem, h200());
    EXPECT_EQ(plan.algorithm, algorithm);
    EXPECT_THAT(plan.explain(), HasSubstr("asked for"));
  }
}

TEST(GpuLayer, WeightsThatNoBlockCanHoldAreRefused) {
  GpuLayerProblem problem = layer(Storage::f32, 8, 300, 100'000, 64);
  problem.scan.algorithm = ScanAlgorithm::fused;
  test::expect_error(ErrorCode::unsupported, "2 gates of 100000 inputs and a chunk of x need more than the 227 KB",
                     [&] { plan_gpu_layer(problem, h200()); });
  problem.scan.algorithm = ScanAlgorithm::automatic;
  EXPECT_THAT(plan_gpu_layer(problem, h200()).explain(), HasSubstr("cannot hold the weights"));
}

TEST(GpuLayer, FusedBlocksFitTheChip) {
  for (const Storage storage : {Storage::f32, Storage::bf16, Storage::f16}) {
    for (const Index input : {1, 7, 100, 256, 1023}) {
      for (const Index hidden : {1, 33, 100, 1024}) {
        for (const int gates : {2, 3}) {
          GpuLayerProblem problem = layer(storage, 5, 777, input, hidden);
          problem.scan.gates = gates;
          problem.scan.algorithm = ScanAlgorithm::fused;
          const GpuScanPlan plan = plan_gpu_layer(problem, h200());
          EXPECT_LE(plan.shared, h200().block_bytes);
          EXPECT_EQ(plan.shared, fused_shared_bytes(plan, problem));
          EXPECT_LE(plan.threads(), 512);
          EXPECT_EQ(hidden % plan.vector, 0);
          EXPECT_GE(plan.channel_tiles(hidden) * plan.tile_channels(), hidden);
        }
      }
    }
  }
}

TEST(GpuProduct, PlansCoverTheProductAndFitTheChip) {
  for (const Index m : {1, 33, 200, 64'000}) {
    for (const Index n : {1, 100, 513}) {
      for (const Index k : {1, 100, 65'537}) {
        for (const bool a_transposed : {false, true}) {
          GpuProductProblem problem{.m = m, .n = n, .k = k, .a_transposed = a_transposed};
          problem.b_transposed = !a_transposed;
          const GpuProductPlan plan = plan_gpu_product(problem, h200());
          EXPECT_GE(plan.grid_m(m) * plan.tile_m(), m);
          EXPECT_GE(plan.grid_n(n) * plan.tile_n(), n);
          EXPECT_GE(plan.splits * plan.split_k, k);
          EXPECT_LT((plan.splits - 1) * plan.split_k, k) << "no split is empty";
          EXPECT_EQ(plan.split_k % GpuProductPlan::step, 0);
          EXPECT_LE(plan.shared, h200().block_bytes);
          EXPECT_LE(plan.threads(), plan.warpgroups ? 384 : 256);
          EXPECT_GT(plan.cycles, 0);
        }
      }
    }
  }
}

TEST(GpuProduct, LongSumsOfSmallResultsAreCut) {
  GpuProductProblem problem{.m = 200, .n = 100, .k = 64'000, .a_transposed = true};
  const GpuProductPlan plan = plan_gpu_product(problem, h200());
  EXPECT_GT(plan.splits, 16);
  EXPECT_THAT(plan.explain(), HasSubstr("floats on tensor cores: tiles of "));
  EXPECT_THAT(plan.explain(), HasSubstr("estimated at"));
  problem.one_split = true;
  EXPECT_EQ(plan_gpu_product(problem, h200()).splits, 1);
  EXPECT_EQ(plan_gpu_product({.m = 64'000, .n = 200, .k = 100}, h200()).splits, 1);
}

TEST(GpuProduct, WarpgroupsAreOfOneGeneration) {
  GpuProductProblem problem{.m = 64'000, .n = 200, .k = 100, .b_transposed = true};
  const GpuProductPlan plan = plan_gpu_product(problem, h200());
  ASSERT_TRUE(plan.warpgroups);
  EXPECT_TRUE(plan.resident()) << "64,000 rows, one after the other, by the same weights";
  EXPECT_LE(plan.blocks_m(problem.m) * plan.grid_n(problem.n), h200().multiprocessors);
  EXPECT_THAT(plan.explain(), HasSubstr("2 x 1 warpgroups of 64 x 104 sums"));
  problem.k = 4096;
  EXPECT_FALSE(plan_gpu_product(problem, h200()).resident()) << "more than shared memory holds";
  for (const int major : {8, 10}) {
    GpuModel other = h200();
    other.compute_major = major;
    EXPECT_FALSE(plan_gpu_product(problem, other).warpgroups);
  }
}

/// Measured on an H200: by warps they took up to 1.7 times as long.
TEST(GpuProduct, SmallOnesAreOfWarpgroups) {
  for (const auto& [m, n, k, transposed] : {std::tuple{447, 361, 992, true}, std::tuple{527, 320, 652, false},
                                            std::tuple{64, 302, 8142, true}, std::tuple{49'032, 21, 360, false}}) {
    const GpuProductProblem problem{.m = m, .n = n, .k = k, .a_transposed = transposed};
    EXPECT_TRUE(plan_gpu_product(problem, h200()).warpgroups) << m << " x " << n << " x " << k;
  }
}

TEST(GpuProduct, LargeOnesAreOfPairs) {
  GpuProductProblem problem{.m = 32'768, .n = 4096, .k = 1024, .b_transposed = true};
  const GpuProductPlan plan = plan_gpu_product(problem, h200()), without = plan_product_without_pairs(problem, h200());
  ASSERT_TRUE(plan.pairs);
  EXPECT_FALSE(without.pairs);
  EXPECT_LT(plan.cycles, without.cycles);
  EXPECT_EQ(plan.split_k % 64, 0) << "one scale";
  EXPECT_GE(plan.depth, 4);
  EXPECT_THAT(plan.explain(), HasSubstr("floats as pairs of float16 on tensor cores: tiles of 128 x "));
  EXPECT_THAT(plan.explain(), HasSubstr("half steps of 64 under way"));
  EXPECT_FALSE(plan_gpu_product({.m = 1000, .n = 100, .k = 100}, h200()).pairs) << "six more launches";
  EXPECT_TRUE(plan_gpu_product({.m = 65'536, .n = 520, .k = 300, .b_transposed = true}, h200()).pairs);
  EXPECT_FALSE(plan_gpu_product({.m = 64'000, .n = 200, .k = 100, .b_transposed = true}, h200()).pairs) << "a short K";
  problem.exact = true;
  EXPECT_FALSE(plan_gpu_product(problem, h200()).pairs);
}

TEST(GpuProduct, OtherPlansComeBestFirst) {
  const GpuProductProblem problem{.m = 64'000, .n = 100, .k = 200};
  const std::vector<GpuProductPlan> plans = product_plans(problem, h200());
  ASSERT_GT(plans.size(), 20u);
  EXPECT_EQ(plans.front().why, plan_gpu_product(problem, h200()).why);
}

TEST(GpuProduct, SizesAreChecked) {
  test::expect_error(ErrorCode::invalid_argument, "a product must have sizes of at least 1, not 3 x 0 x 5",
                     [] { plan_gpu_product({.m = 3, .n = 0, .k = 5}, h200()); });
}

}  // namespace
}  // namespace penstock::plan
