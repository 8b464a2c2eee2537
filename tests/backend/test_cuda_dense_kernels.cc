// Kernels of dense cells compile for every generation of chips, without a GPU: no register spilled. Needs NVRTC.

#include "backend/cuda/dense/head.h"
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

  void expect_sound(GpuDenseProblem problem) const {
    const plan::GpuDensePlan plan = plan_gpu_dense(problem, test::chip(chip));
    SCOPED_TRACE(fmt::format("{} {} of {}{}", to_string(problem.storage), problem.backward ? "backward" : "forward",
                             problem.head_size(), problem.ragged ? ", ragged" : ""));
    test::expect_sound(dense_head_source(problem, plan), chip, plan.threads());
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
  struct Size {
    Storage storage;
    Index head, rows;
    bool ragged;
  };
  std::vector<Size> sizes = {{Storage::bf16, 64, 16, false},   {Storage::bf16, 128, 16, false},
                             {Storage::bf16, 128, 1000, true}, {Storage::f16, 64, 1000, true},
                             {Storage::f32, 64, 16, false},    {Storage::f32, 64, 1000, true},
                             {Storage::bf16, 33, 4, true},     {Storage::f32, 8, 3, false}};
  if (chip >= 90) sizes.push_back({Storage::f32, 128, 16, false});
  for (const auto& [storage, head, rows, ragged] : sizes) {
    GpuDenseProblem of = problem(storage, head, rows);
    of.ragged = of.reset = ragged;
    expect_sound(of);
    of.training = true;
    expect_sound(of);
    of.training = false, of.backward = true;
    expect_sound(of);
  }
}

std::vector<std::string_view> dense_cells() {
  std::vector<std::string_view> names;
  for (const CellInfo& cell : cells()) {
    if (!cell.scan) names.push_back(cell.name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Cuda, DenseKernels,
                         testing::Combine(testing::ValuesIn(dense_cells()), testing::Values(80, 90)),
                         [](const auto& of) {
                           std::string name(std::get<0>(of.param));
                           std::replace(name.begin(), name.end(), '-', '_');
                           return fmt::format("{}_sm_{}", name, std::get<1>(of.param));
                         });

}  // namespace
}  // namespace penstock::cuda
