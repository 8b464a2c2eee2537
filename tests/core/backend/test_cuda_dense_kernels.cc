// Kernels of dense cells compile for every generation of chips, without a GPU: no register spilled. Needs NVRTC.

#include "backend/cuda/dense/diagonal.h"
#include "backend/cuda/dense/head.h"
#include "backend/cuda/dense/source.h"
#include "support/compiled_kernel.h"

namespace penstock::cuda {
namespace {

using plan::GpuDenseProblem;
using plan::Storage;

class DenseKernels : public testing::TestWithParam<std::tuple<std::string_view, int>> {
 protected:
  void SetUp() override { test::need_nvrtc(chip); }
  std::string cell{std::get<0>(GetParam())};
  int chip = std::get<1>(GetParam());

  /// Floats in TF32, too.
  void expect_sound(GpuDenseProblem problem) const {
    if (problem.storage == Storage::f32 && !problem.tf32) {
      problem.tf32 = true;
      expect_sound(problem);
      problem.tf32 = false;
    }
    const plan::GpuDensePlan plan = plan_gpu_dense(problem, test::chip(chip));
    SCOPED_TRACE(fmt::format("{} {} of {}{}", to_string(problem.storage), problem.backward ? "backward" : "forward",
                             problem.head_size(), problem.ragged ? ", ragged" : ""));
    test::expect_sound(dense_source(problem, plan), chip, plan.threads() * plan.blocks);
  }

  GpuDenseProblem problem(Storage storage, Index head, Index rows) const {
    GpuDenseProblem problem;
    problem.cell = cell, problem.storage = storage;
    problem.rows = rows, problem.steps = 1000;
    problem.heads = 12, problem.hidden = 12 * head;
    problem.alignment = static_cast<int>(std::min<Index>(16, (head * size_of(storage)) & -(head * size_of(storage))));
    return problem;
  }
};

/// The largest heads need most registers; odd ones take other paths to memory.
TEST_P(DenseKernels, FitTheirRegisters) {
  const auto both_ways = [&](GpuDenseProblem of) {
    of.training = true;
    expect_sound(of);
    of.training = false, of.backward = true;
    of.clipped = of.ragged;
    expect_sound(of);
  };
  both_ways(problem(Storage::bf16, 128, 16));
  const bool has_others = plan::cell_traits(cell).states() > 1;
  GpuDenseProblem ragged = problem(Storage::f32, 64, 1000);
  ragged.every_state = has_others;
  ragged.ragged = ragged.reset = true;
  both_ways(ragged);
  if (chip < 90) return;
  expect_sound(problem(Storage::bf16, 64, 16));
  both_ways(problem(Storage::bf16, 64, 1000));  // several blocks share a multiprocessor
  both_ways(problem(Storage::f32, 128, 16));
  ragged = problem(Storage::bf16, 128, 1000);
  ragged.every_state = has_others;
  ragged.ragged = ragged.reset = ragged.reverse = true;
  both_ways(ragged);
  ragged = problem(Storage::f16, 33, 4);
  ragged.every_state = has_others;
  ragged.ragged = ragged.reset = true;
  both_ways(ragged);
}

/// Runs with derivatives of four states need most registers.
void expect_diagonals_sound(std::string_view cell, Storage storage, int chip, bool ragged) {
  test::need_nvrtc(chip);
  GpuDenseProblem problem;
  problem.cell = cell, problem.storage = storage;
  problem.rows = 2, problem.steps = 50'000;
  problem.heads = problem.hidden = 100;
  problem.ragged = problem.reset = problem.reverse = ragged;
  problem.every_state = ragged && plan::cell_traits(cell).states() > 1;
  for (const bool backward : {false, true}) {
    problem.backward = backward, problem.training = !backward;
    for (const int pieces : {0, 1}) {
      problem.parts = pieces;
      const plan::GpuDensePlan plan = plan_gpu_dense(problem, test::chip(chip));
      ASSERT_EQ(plan.algorithm, plan::DenseAlgorithm::diagonal);
      std::vector<DiagonalPart> parts = {DiagonalPart::chains};
      if (pieces == 0) {
        EXPECT_GT(plan.pieces, 1);
        parts = {DiagonalPart::pieces, DiagonalPart::between, DiagonalPart::chains};
        if (!backward) parts.back() = DiagonalPart::exact;
      }
      for (const DiagonalPart part : parts) {
        SCOPED_TRACE(fmt::format("{} {} {}: {}", cell, to_string(storage), static_cast<int>(part), plan.explain()));
        test::expect_sound(dense_diagonal_source(problem, plan, part), chip, plan.threads());
      }
    }
  }
}

TEST_P(DenseKernels, OfDiagonalsFitTheirRegisters) {
  expect_diagonals_sound(cell, Storage::f32, chip, false);
  if (chip == 90) expect_diagonals_sound(cell, Storage::bf16, chip, true);
}

TEST(DenseDiagonalKernels, CompileForEveryChip) {
  for (const int chip : {86, 89, 100, 120}) expect_diagonals_sound("lstm", Storage::f16, chip, true);
}

TEST(DenseGradientKernels, FitTheirRegisters) {
  constexpr int hopper = 90;
  test::need_nvrtc(hopper);
  for (const Storage storage : {Storage::f32, Storage::bf16}) {
    for (const Index head : {7, 64, 128}) {
      DenseSpec spec{.cell = "lstm", .hidden = 4 * head, .heads = 4, .storage = storage};
      test::expect_sound(head_gradient_source(spec, 4, 16), hopper, 256);
      spec.tf32 = storage == Storage::f32;
      test::expect_sound(head_gradient_source(spec, 4, 16), hopper, 256);
    }
    test::expect_sound(entering_states_source(storage, false, 1), hopper, kEnteringThreads);
  }
  test::expect_sound(sort_rows_source(), hopper, kSortThreads);
}

std::vector<std::string_view> dense_cells() {
  std::vector<std::string_view> names;
  for (const CellInfo& cell : cells()) {
    if (!cell.scan && cell.name != "elman-relu") names.push_back(cell.name);  // needs less than elman
  }
  return names;
}

std::vector<std::tuple<std::string_view, int>> cells_and_chips() {
  std::vector<std::tuple<std::string_view, int>> pairs;
  for (const int chip : test::kChips) {
    for (const std::string_view cell : dense_cells()) {
      const bool sampled = chip == 90 || cell == "lstm" || (chip == 80 && cell == "gru");
      if (sampled || test::compiles_all()) pairs.emplace_back(cell, chip);
    }
  }
  return pairs;
}

INSTANTIATE_TEST_SUITE_P(Cuda, DenseKernels, testing::ValuesIn(cells_and_chips()), [](const auto& of) {
  std::string name(std::get<0>(of.param));
  std::replace(name.begin(), name.end(), '-', '_');
  return fmt::format("{}_sm_{}", name, std::get<1>(of.param));
});

}  // namespace
}  // namespace penstock::cuda
