// Kernels of dense cells over clusters of blocks compile without a GPU, and what cannot run is refused. Needs NVRTC.

#include "backend/cuda/dense/cluster.h"
#include "support/compiled_kernel.h"
#include "support/expect_error.h"

namespace penstock::cuda {
namespace {

using plan::GpuDenseProblem;
using plan::Storage;

constexpr int kHopper = 90;

GpuDenseProblem problem_of(std::string_view cell, Storage storage, Index head, Index rows, Index heads = 1) {
  GpuDenseProblem problem;
  problem.cell = cell, problem.storage = storage;
  problem.rows = rows, problem.steps = 1000;
  problem.heads = heads, problem.hidden = heads * head;
  problem.alignment = static_cast<int>(std::min<Index>(16, (head * size_of(storage)) & -(head * size_of(storage))));
  problem.algorithm = plan::DenseAlgorithm::cluster;
  return problem;
}

class ClusterKernels : public testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override {
    test::need_nvrtc(kHopper);
    test::need_sample(GetParam() != "elman");  // which needs less than the others
  }

  /// Floats in TF32, too.
  static void expect_sound(GpuDenseProblem problem) {
    if (problem.storage == Storage::f32 && !problem.tf32) {
      problem.tf32 = true;
      expect_sound(problem);
      problem.tf32 = false;
    }
    const plan::GpuDensePlan plan = plan_gpu_dense(problem, test::chip(kHopper));
    SCOPED_TRACE(fmt::format("{} {} of {}{}: {}", to_string(problem.storage), problem.backward ? "backward" : "forward",
                             problem.head_size(), problem.ragged ? ", ragged" : "", plan.explain()));
    test::expect_sound(dense_cluster_source(problem, plan), kHopper, plan.threads());
  }
};

/// Large heads fill the registers, small batches have other warps, and odd sizes take other paths to memory. A forward
/// pass without a tape is part of one with it. Resets are counted in another way where there are no lengths.
TEST_P(ClusterKernels, FitTheirRegisters) {
  struct Size {
    Storage storage;
    Index head, rows;
    bool ragged, reset = ragged, restarts = ragged;
  };
  for (const auto& [storage, head, rows, ragged, reset, restarts] : {Size{Storage::bf16, 768, 16, false},
                                                                     {Storage::bf16, 512, 16, false},
                                                                     {Storage::bf16, 512, 1, false, true, true},
                                                                     {Storage::bf16, 256, 128, false, true, false},
                                                                     {Storage::bf16, 256, 128, false, true, true},
                                                                     {Storage::bf16, 768, 64, true},
                                                                     {Storage::f16, 301, 13, true},
                                                                     {Storage::f32, 256, 16, false},
                                                                     {Storage::f32, 132, 100, true},
                                                                     {Storage::bf16, 1, 1, true}}) {
    GpuDenseProblem problem = problem_of(GetParam(), storage, head, rows);
    problem.ragged = problem.reverse = ragged;
    problem.reset = reset, problem.restarts = restarts;
    problem.every_state = ragged && plan::cell_traits(GetParam()).states() > 1;
    problem.training = true;
    expect_sound(problem);
    problem.training = false, problem.backward = true;
    problem.clipped = ragged;
    expect_sound(problem);
  }
}

INSTANTIATE_TEST_SUITE_P(Cuda, ClusterKernels, testing::Values("elman", "gru", "lstm", "slstm"),
                         [](const auto& of) { return std::string(of.param); });

class LaterChips : public testing::TestWithParam<int> {};

/// They have clusters too.
TEST_P(LaterChips, CompileAsHopperDoes) {
  test::need_nvrtc(GetParam());
  if (IsSkipped()) return;
  GpuDenseProblem problem = problem_of("lstm", Storage::bf16, 512, 16);
  for (const bool backward : {false, true}) {
    problem.backward = backward, problem.training = !backward;
    const plan::GpuDensePlan plan = plan_gpu_dense(problem, test::chip(GetParam()));
    test::expect_sound(dense_cluster_source(problem, plan), GetParam(), plan.threads());
  }
}

INSTANTIATE_TEST_SUITE_P(Cuda, LaterChips, testing::Values(100, 120));

TEST(ClusterPlan, RefusesWhatCannotRun) {
  test::expect_error(ErrorCode::unsupported,
                     "clusters of blocks need a chip of sm_90 or later, and a chip of sm_80 is of",
                     [] { plan_gpu_dense(problem_of("lstm", Storage::bf16, 512, 16), test::chip(80)); });
  test::expect_error(ErrorCode::unsupported, "gru-before needs a second exchange",
                     [] { plan_gpu_dense(problem_of("gru-before", Storage::bf16, 512, 16), test::chip(kHopper)); });
  test::expect_error(ErrorCode::unsupported, "of a head of 2048 units of lstm in bf16, spread over 16 blocks, needs",
                     [] { plan_gpu_dense(problem_of("lstm", Storage::bf16, 2048, 16), test::chip(kHopper)); });
}

/// Forward passes with and without a tape give the same bits: they share a shape.
TEST(ClusterPlan, DoesNotDependOnTheTape) {
  for (const Index rows : {1, 5, 16, 64}) {
    GpuDenseProblem problem = problem_of("lstm", Storage::bf16, 768, rows);
    const plan::GpuDensePlan inference = plan_gpu_dense(problem, test::chip(kHopper));
    problem.training = true;
    const plan::GpuDensePlan training = plan_gpu_dense(problem, test::chip(kHopper));
    EXPECT_EQ(inference.cluster, training.cluster);
    EXPECT_EQ(inference.slots, training.slots);
    EXPECT_EQ(inference.octets, training.octets);
    EXPECT_EQ(inference.parts, training.parts);
    EXPECT_EQ(inference.chunks, training.chunks);
  }
}

}  // namespace
}  // namespace penstock::cuda
