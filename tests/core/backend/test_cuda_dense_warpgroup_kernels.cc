// Kernels of dense cells over large batches compile for Hopper without a GPU: no register spilled. Needs NVRTC.

#include "backend/cuda/dense/warpgroup.h"
#include "support/compiled_kernel.h"
#include "support/expect_error.h"

namespace penstock::cuda {
namespace {

using plan::DenseAlgorithm;
using plan::GpuDenseProblem;
using plan::Storage;

constexpr int kHopper = 90;

GpuDenseProblem problem_of(std::string_view cell, Storage storage, Index head, Index rows) {
  GpuDenseProblem problem;
  problem.cell = cell, problem.storage = storage;
  problem.rows = rows, problem.steps = 1000;
  problem.hidden = head;
  problem.algorithm = DenseAlgorithm::warpgroup;
  return problem;
}

class WarpgroupKernels : public testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override {
    test::need_nvrtc(kHopper);
    test::need_sample(GetParam() != "elman");  // which needs less than the others
  }
};

struct Size {
  Storage storage;
  Index head, rows;
  bool all;
  int shares = -1, slots = 0, portions = 0;
};

/// With R in registers alone and in shared memory, few rows and many, and everything that a step can have.
TEST_P(WarpgroupKernels, FitTheirRegisters) {
  for (const auto& [storage, head, rows, all, shares, slots, portions] : {Size{Storage::bf16, 1024, 64, false},
                                                                          {Storage::bf16, 1024, 256, true},
                                                                          {Storage::f16, 512, 512, true},
                                                                          {Storage::bf16, 2048, 256, false},
                                                                          {Storage::bf16, 2048, 256, true, 0, 128, 2},
                                                                          {Storage::f16, 128, 100, true},
                                                                          {Storage::bf16, 2048, 256, false, 2},
                                                                          {Storage::f16, 256, 64, true, 2},
                                                                          {Storage::bf16, 900, 96, false},
                                                                          {Storage::f16, 1002, 64, true},
                                                                          {Storage::bf16, 2500, 64, true, 1},
                                                                          {Storage::bf16, 2560, 16, false, 1},
                                                                          {Storage::f16, 4096, 64, true, 1},
                                                                          {Storage::f32, 1024, 64, false},
                                                                          {Storage::f32, 1024, 256, true},
                                                                          {Storage::f32, 901, 64, true}}) {
    GpuDenseProblem problem = problem_of(GetParam(), storage, head, rows);
    problem.shares = shares, problem.slots = slots, problem.groups = portions;
    problem.training = problem.ragged = problem.reset = problem.reverse = all;
    problem.every_state = all && plan::cell_traits(GetParam()).states() > 1;
    problem.alignment = common_alignment(16, {head * size_of(storage)});
    for (const bool tf32 : {false, true}) {
      if (tf32 && storage != Storage::f32) continue;
      problem.tf32 = tf32;
      const plan::GpuDensePlan plan = plan_gpu_dense(problem, test::chip(kHopper));
      SCOPED_TRACE(fmt::format("{} of {}: {}", tf32 ? "tf32" : to_string(storage), head, plan.explain()));
      test::expect_sound(dense_warpgroup_source(problem, plan), kHopper, plan.threads());
    }
  }
}

TEST_P(WarpgroupKernels, FitTheirRegistersBackwards) {
  for (const auto& [storage, head, rows, all, shares, slots, portions] : {Size{Storage::bf16, 1024, 64, false},
                                                                          {Storage::bf16, 1024, 256, true},
                                                                          {Storage::f16, 512, 512, true},
                                                                          {Storage::f16, 256, 100, true},
                                                                          {Storage::bf16, 2048, 256, false, 8},
                                                                          {Storage::f16, 256, 64, true, 4},
                                                                          {Storage::bf16, 900, 96, false},
                                                                          {Storage::f16, 1002, 64, true},
                                                                          {Storage::bf16, 2500, 64, true, 4},
                                                                          {Storage::bf16, 2560, 32, false, 2},
                                                                          {Storage::bf16, 4096, 64, true, 4},
                                                                          {Storage::f32, 1024, 64, false},
                                                                          {Storage::f32, 512, 256, true},
                                                                          {Storage::f32, 901, 64, true}}) {
    GpuDenseProblem problem = problem_of(GetParam(), storage, head, rows);
    problem.shares = shares, problem.slots = slots, problem.groups = portions;
    problem.backward = true;
    problem.ragged = problem.reset = problem.reverse = problem.clipped = all;
    problem.every_state = all && plan::cell_traits(GetParam()).states() > 1;
    problem.alignment = common_alignment(16, {head * size_of(storage)});
    problem.tf32 = storage == Storage::f32;
    const plan::GpuDensePlan plan = plan_gpu_dense(problem, test::chip(kHopper));
    SCOPED_TRACE(fmt::format("{} of {}: {}", to_string(storage), head, plan.explain()));
    ASSERT_EQ(plan.algorithm, DenseAlgorithm::warpgroup);
    test::expect_sound(dense_warpgroup_source(problem, plan), kHopper, plan.threads());
  }
}

INSTANTIATE_TEST_SUITE_P(Cuda, WarpgroupKernels, testing::Values("elman", "gru", "lstm", "slstm"),
                         [](const auto& of) { return std::string(of.param); });

TEST(WarpgroupPlan, RefusesWhatCannotRun) {
  const auto refuses = [](const std::string& what, const GpuDenseProblem& problem, int chip = kHopper) {
    test::expect_error(ErrorCode::unsupported, what, [&] { plan_gpu_dense(problem, test::chip(chip)); });
  };
  refuses("and a chip of sm_100 is of sm_100", problem_of("lstm", Storage::bf16, 1024, 64), 100);
  refuses("states as halves, and those of elman-relu have no bound", problem_of("elman-relu", Storage::f32, 1024, 64));
  GpuDenseProblem exact = problem_of("lstm", Storage::f32, 1024, 64);
  exact.exact = true;
  refuses("not in exact mode", exact);
  refuses("unlike gru-before", problem_of("gru-before", Storage::bf16, 1024, 64));
  refuses("a head of up to 4096 units, not of 4224", problem_of("lstm", Storage::bf16, 4224, 64));
  GpuDenseProblem odd = problem_of("lstm", Storage::bf16, 1023, 64);
  odd.alignment = 2;
  refuses("4 bytes at once, two units, and tensors and heads are multiples of 2", odd);
}

/// Matrices that pairs of blocks cannot hold: more blocks share the sums, and read the rest of R at every step.
TEST(WarpgroupPlan, SharesLargeMatrices) {
  GpuDenseProblem problem = problem_of("lstm", Storage::bf16, 2048, 64);
  problem.backward = true;
  plan::GpuDensePlan plan = plan_gpu_dense(problem, test::chip(kHopper));
  EXPECT_EQ(plan.shares, 8) << plan.explain();
  EXPECT_EQ(plan.streamed, 0) << plan.explain();
  for (const Index head : {Index{2560}, Index{3072}, Index{4096}}) {
    for (const bool backward : {false, true}) {
      problem = problem_of("lstm", Storage::bf16, head, 16);
      problem.backward = backward, problem.algorithm = DenseAlgorithm::automatic;
      plan = plan_gpu_dense(problem, test::chip(kHopper));
      EXPECT_EQ(plan.algorithm, DenseAlgorithm::warpgroup) << plan.explain();
      EXPECT_GT(plan.streamed, 0) << plan.explain();
      EXPECT_THAT(plan.explain(), testing::HasSubstr("loads of the matrix at every step"));
    }
  }
}

/// A warpgroup releases what it multiplied by once it has issued the next products.
TEST(WarpgroupPlan, HoldsAnItemBesideTheNextOne) {
  int plans = 0;
  for (const Index head : {Index{128}, Index{1024}, Index{1536}, Index{2048}}) {
    for (const int rows : {16, 32, 48, 64}) {
      for (const int portions : {1, 2, 3, 4}) {
        GpuDenseProblem problem = problem_of("lstm", Storage::bf16, head, 256);
        problem.shares = 0, problem.slots = rows * portions, problem.groups = portions;
        for (const bool backward : {false, true}) {
          problem.backward = backward;
          plan::GpuDensePlan plan;
          try {
            plan = plan_gpu_dense(problem, test::chip(kHopper));
          } catch (const Error&) {
            continue;  // no such shape
          }
          ++plans;
          EXPECT_TRUE(plan.stages > 1 || plan.chunks == 4 * plan.depth) << plan.explain();
        }
      }
    }
  }
  EXPECT_GT(plans, 60);
}

/// Rows and portions of a team that were measured to be quickest on an H100.
TEST(WarpgroupPlan, RunsBackInTheQuickestPortions) {
  struct Quickest {
    std::string_view cell;
    Index head, rows;
    int slots, portions;
  };
  for (const auto& [cell, head, rows, slots, portions] : {Quickest{"lstm", 1024, 64, 16, 1},
                                                          {"lstm", 1024, 128, 32, 2},
                                                          {"lstm", 1024, 256, 64, 2},
                                                          {"lstm", 512, 512, 64, 2},
                                                          {"lstm", 2048, 64, 64, 1},
                                                          {"lstm", 2048, 256, 128, 2},
                                                          {"gru", 1024, 256, 64, 2}}) {
    GpuDenseProblem problem = problem_of(cell, Storage::bf16, head, rows);
    problem.backward = true;
    const plan::GpuDensePlan plan = plan_gpu_dense(problem, test::chip(kHopper));
    EXPECT_EQ(plan.slots, slots) << plan.explain();
    EXPECT_EQ(plan.groups, portions) << plan.explain();
  }
}

TEST(WarpgroupPlan, IsForLargeBatches) {
  const auto algorithm_of = [](Index rows) {
    GpuDenseProblem problem = problem_of("lstm", Storage::bf16, 1024, rows);
    problem.algorithm = DenseAlgorithm::automatic;
    return plan_gpu_dense(problem, test::chip(kHopper)).algorithm;
  };
  EXPECT_EQ(algorithm_of(16), DenseAlgorithm::chip);
  EXPECT_EQ(algorithm_of(64), DenseAlgorithm::warpgroup);
  EXPECT_EQ(algorithm_of(512), DenseAlgorithm::warpgroup);
}

}  // namespace
}  // namespace penstock::cuda
