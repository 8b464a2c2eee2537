// Kernels of dense cells whose recurrent matrix takes the whole chip, or no part of it, compile for every generation of
// chips without a GPU: no register spilled. Needs NVRTC.

#include "backend/cuda/dense/chip.h"
#include "backend/cuda/dense/steps.h"
#include "support/compiled_kernel.h"
#include "support/expect_error.h"

namespace penstock::cuda {
namespace {

using plan::DenseAlgorithm;
using plan::GpuDenseProblem;
using plan::Storage;

constexpr int kHopper = 90;

GpuDenseProblem problem_of(std::string_view cell, Storage storage, Index head, Index rows, DenseAlgorithm algorithm) {
  GpuDenseProblem problem;
  problem.cell = cell, problem.storage = storage;
  problem.rows = rows, problem.steps = 1000;
  problem.hidden = head;
  problem.alignment = static_cast<int>(std::min<Index>(16, (head * size_of(storage)) & -(head * size_of(storage))));
  problem.algorithm = algorithm;
  return problem;
}

/// Floats in TF32, too.
void expect_sound(GpuDenseProblem problem, int chip) {
  if (problem.storage == Storage::f32 && !problem.tf32) {
    problem.tf32 = true;
    expect_sound(problem, chip);
    problem.tf32 = false;
  }
  const plan::GpuDensePlan plan = plan_gpu_dense(problem, test::chip(chip));
  SCOPED_TRACE(fmt::format("{} {} of {}: {}", to_string(problem.storage), problem.backward ? "backward" : "forward",
                           problem.head_size(), plan.explain()));
  test::expect_sound(
      problem.algorithm == DenseAlgorithm::chip ? dense_chip_source(problem, plan) : dense_step_source(problem, plan),
      chip, plan.threads());
}

/// A forward pass without a tape is part of one with it.
void expect_all_passes_sound(GpuDenseProblem problem, int chip) {
  problem.training = true;
  expect_sound(problem, chip);
  problem.training = false, problem.backward = true;
  problem.clipped = problem.ragged;
  expect_sound(problem, chip);
}

class ChipKernels : public testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override { test::need_nvrtc(kHopper); }
};

/// Large heads fill the registers, small batches have other warps, and odd sizes take other paths to memory.
TEST_P(ChipKernels, FitTheirRegisters) {
  struct Size {
    Storage storage;
    Index head, rows;
    int cluster;
    bool ragged, restarts = ragged;
  };
  for (const auto& [storage, head, rows, cluster, ragged, restarts] : {Size{Storage::bf16, 2048, 16, 0, false},
                                                                       {Storage::bf16, 1024, 64, 0, true},
                                                                       {Storage::f16, 301, 13, 8, true},
                                                                       {Storage::f32, 256, 128, 0, false, true},
                                                                       {Storage::f32, 132, 30, 2, true}}) {
    GpuDenseProblem problem = problem_of(GetParam(), storage, head, rows, DenseAlgorithm::chip);
    problem.cluster = cluster;
    problem.ragged = problem.reverse = ragged;
    problem.reset = problem.restarts = restarts;
    problem.every_state = ragged && plan::cell_traits(GetParam()).states() > 1;
    expect_all_passes_sound(problem, kHopper);
  }
}

// Elman needs less than all others.
INSTANTIATE_TEST_SUITE_P(Cuda, ChipKernels, testing::Values("gru", "lstm", "slstm"),
                         [](const auto& of) { return std::string(of.param); });

class DenseChips : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { test::need_nvrtc(GetParam()); }
};

/// Without clusters too, blocks exchange by way of the second-level cache.
TEST_P(DenseChips, CompileThem) {
  expect_all_passes_sound(problem_of("lstm", Storage::bf16, 640, 16, DenseAlgorithm::chip), GetParam());
  for (const std::string_view cell : {"lstm", "gru", "gru-before"}) {
    expect_all_passes_sound(problem_of(cell, Storage::bf16, 640, 16, DenseAlgorithm::step), GetParam());
  }
}

INSTANTIATE_TEST_SUITE_P(Cuda, DenseChips, testing::Values(80, 86, 89, 90, 100, 120));

TEST(ChipPlan, RefusesWhatCannotRun) {
  test::expect_error(ErrorCode::unsupported, "gru-before needs a second exchange", [] {
    plan_gpu_dense(problem_of("gru-before", Storage::bf16, 512, 16, DenseAlgorithm::chip), test::chip(kHopper));
  });
  test::expect_error(
      ErrorCode::unsupported, "of a head of 4096 units of lstm in bf16 does not fit into the registers",
      [] { plan_gpu_dense(problem_of("lstm", Storage::bf16, 4096, 16, DenseAlgorithm::chip), test::chip(kHopper)); });
}

/// Forward passes with and without a tape give the same bits: they share a shape.
TEST(ChipPlan, DoesNotDependOnTheTape) {
  for (const Index rows : {1, 5, 16, 64}) {
    GpuDenseProblem problem = problem_of("lstm", Storage::bf16, 1024, rows, DenseAlgorithm::automatic);
    const plan::GpuDensePlan inference = plan_gpu_dense(problem, test::chip(kHopper));
    EXPECT_EQ(inference.algorithm, rows < 64 ? DenseAlgorithm::chip : DenseAlgorithm::warpgroup);
    problem.training = true;
    plan::GpuDensePlan training = plan_gpu_dense(problem, test::chip(kHopper));
    training.shared = inference.shared;
    EXPECT_EQ(inference, training);
  }
}

/// Every size runs: what fits nowhere takes a launch a step.
TEST(DensePlan, HasAnAlgorithmForEverySize) {
  const auto algorithm_of = [](std::string_view cell, Storage storage, Index head, int chip) {
    return plan_gpu_dense(problem_of(cell, storage, head, 16, DenseAlgorithm::automatic), test::chip(chip)).algorithm;
  };
  EXPECT_EQ(algorithm_of("lstm", Storage::bf16, 2048, kHopper), DenseAlgorithm::chip);
  EXPECT_EQ(algorithm_of("lstm", Storage::bf16, 4096, kHopper), DenseAlgorithm::warpgroup);
  EXPECT_EQ(algorithm_of("lstm", Storage::bf16, 8192, kHopper), DenseAlgorithm::step);
  EXPECT_EQ(algorithm_of("lstm", Storage::f32, 4096, kHopper), DenseAlgorithm::step);
  EXPECT_EQ(algorithm_of("gru-before", Storage::bf16, 1024, kHopper), DenseAlgorithm::step);
  EXPECT_EQ(algorithm_of("lstm", Storage::bf16, 512, 80), DenseAlgorithm::chip);
}

}  // namespace
}  // namespace penstock::cuda
