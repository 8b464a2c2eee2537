// Every kernel compiles for Hopper, and each for another generation of chips besides, without a GPU: no register
// spilled, and no more shared memory than the plan says. Needs NVRTC.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "backend/cuda/driver/kernel_cache.h"
#include "backend/cuda/driver/nvrtc.h"
#include "backend/cuda/product/float_pairs.h"
#include "backend/cuda/product/sum_columns.h"
#include "backend/cuda/product/sum_splits.h"
#include "backend/cuda/scan/epilogue.h"
#include "backend/cuda/scan/fused.h"
#include "backend/cuda/scan/scan.h"
#include "backend/cuda/scan/step.h"
#include "penstock/error.h"
#include "support/compiled_kernel.h"

namespace penstock::cuda {
namespace {

using plan::GpuScanProblem;
using plan::Storage;
using test::chip;
using test::expect_sound;
using test::need_nvrtc;
using test::Report;
using test::report_of;

struct Subject {
  ScanRule rule;
  GpuScanProblem problem;
};

Subject subject(const ScanRule& rule, Storage storage, bool backward, bool ragged, Index channels) {
  GpuScanProblem problem{.storage = storage, .rows = 2, .steps = 5000, .channels = channels};
  problem.backward = backward;
  problem.gates = rule.gates, problem.read_back = rule.read_back, problem.computed = rule.computed;
  problem.logarithms = rule.logarithms;
  problem.lengths = problem.reset = problem.restarts = ragged;
  problem.algorithm = plan::ScanAlgorithm::scan;
  return {rule, problem};
}

std::vector<std::string> scan_cells() {
  std::vector<std::string> names;
  for (const CellInfo& cell : cells()) {
    if (cell.scan) names.emplace_back(cell.name);
  }
  return names;
}

/// The scan cell of most gates; of several, the last.
std::string widest_cell() {
  std::string widest;
  Index most = 0;
  for (const std::string& name : scan_cells()) {
    const Index gates = find_cell(name).gates;
    if (gates >= most) most = gates, widest = name;
  }
  return widest;
}

/// Every rule, both ways; what changes little about a kernel (16-bit storage, few channels, ragged rows) with the rule
/// that needs least and the one that needs most.
std::vector<Subject> subjects() {
  std::vector<Subject> list;
  std::vector<ScanRule> rules{given_terms, given_signed_logs};
  for (const std::string& cell : scan_cells()) rules.push_back(scan_rule(cell));
  for (const bool backward : {false, true}) {
    for (const ScanRule& rule : rules) {
      list.push_back(subject(rule, Storage::f32, backward, false, 1024));
      if (test::compiles_all()) list.push_back(subject(rule, Storage::bf16, backward, false, 1024));
    }
    for (const ScanRule& rule : {given_terms, scan_rule(widest_cell())}) {
      list.push_back(subject(rule, Storage::bf16, backward, false, 1024));
      list.push_back(subject(rule, Storage::f16, backward, true, 1024));
      list.push_back(subject(rule, Storage::f32, backward, true, 6));
      list.push_back(subject(rule, Storage::bf16, backward, false, 6));
    }
  }
  return list;
}

/// Hopper is what is measured; the others are near enough to it and to each other for each to take turns.
constexpr int hopper = 90;
const std::vector<int> others = {80, 86, 89, 100, 120};

class EveryChip : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { need_nvrtc(GetParam()); }

  /// Is the next kernel one of those that this chip compiles? Hopper compiles all, and one of the others does.
  bool takes_next() { return GetParam() == hopper || others[next_++ % others.size()] == GetParam(); }

 private:
  std::size_t next_ = 0;
};

TEST_P(EveryChip, ScansFitTheirPlan) {
  for (const auto& [rule, problem] : subjects()) {
    if (!takes_next()) continue;
    const plan::GpuScanPlan plan = plan_gpu_scan(problem, chip(GetParam()));
    const Compiled compiled = compile_kernel(scan_source(rule, problem, plan), GetParam());
    const Report report = report_of(compiled.log);
    SCOPED_TRACE(plan.explain() + "\n" + compiled.log);
    EXPECT_EQ(report.stack, 0);
    EXPECT_EQ(report.spills, 0);
    EXPECT_GT(report.registers, 0);
    EXPECT_LE(report.registers * plan.threads() * plan.blocks, 65536);
    EXPECT_EQ(report.shared, 0) << "beside what the launch gives, which the kernel itself checks";
    EXPECT_THAT(compiled.log, testing::Not(testing::HasSubstr("warning")));
    EXPECT_EQ(compiled.cubin.substr(1, 3), "ELF");
  }
}

TEST_P(EveryChip, RunsOfSingleThreadsFit) {
  for (Subject& subject : subjects()) {
    if (!takes_next()) continue;
    subject.problem.algorithm = plan::ScanAlgorithm::direct;
    const plan::GpuScanPlan plan = plan_gpu_scan(subject.problem, chip(GetParam()));
    expect_sound(scan_source(subject.rule, subject.problem, plan), GetParam(), plan.threads() * plan.blocks);
  }
}

TEST_P(EveryChip, CorrectionsFit) {
  for (Subject& subject : subjects()) {
    const bool logarithmic = subject.rule.text == given_signed_logs.text && GetParam() == hopper;
    if (subject.rule.text != given_terms.text && !logarithmic) continue;
    if (!takes_next()) continue;
    subject.problem.algorithm = plan::ScanAlgorithm::direct, subject.problem.restarts = false;
    const plan::GpuScanPlan plan = plan_gpu_scan(subject.problem, chip(GetParam()));
    expect_sound(scan_source(subject.rule, subject.problem, plan, true), GetParam(), plan.threads() * plan.blocks);
  }
}

TEST_P(EveryChip, LayersInOneLaunchFit) {
  struct Sizes {
    Storage storage;
    Index input, hidden;
    bool keep, ragged;
  };
  // The cell of most gates and all cells in turn.
  const std::vector<Sizes> list = {{Storage::f32, 100, 100, true, false},  {Storage::f32, 256, 256, false, true},
                                   {Storage::bf16, 256, 256, true, false}, {Storage::f16, 1024, 1024, true, true},
                                   {Storage::bf16, 7, 33, true, true},     {Storage::f32, 1, 1, true, false}};
  const std::vector<std::string> names = scan_cells();
  for (std::size_t i = 0; i < std::max(list.size(), 2 * names.size()); ++i) {
    if (!takes_next()) continue;
    const auto& [storage, input, hidden, keep, ragged] = list[i % list.size()];
    const std::string cell = i % 2 == 0 ? widest_cell() : names[i / 2 % names.size()];
    const ScanRule rule = scan_rule(cell);
    const Index size = size_of(storage);
    plan::GpuLayerProblem problem;
    problem.scan = subject(rule, storage, false, ragged, hidden).problem;
    problem.scan.rows = 64, problem.scan.steps = 1000;
    problem.scan.algorithm = plan::ScanAlgorithm::fused;
    problem.scan.alignment = common_alignment(16, {hidden * size});
    problem.input = input, problem.keep_gates = keep;
    const plan::GpuScanPlan plan = plan_gpu_layer(problem, chip(GetParam()));
    expect_sound(fused_source(rule, problem, plan, common_alignment(16, {input * size})), GetParam(), plan.threads());
  }
}

TEST_P(EveryChip, ProductsOfFloatsFit) {
  struct Sizes {
    Index m, n, k;
    bool a_transposed, b_transposed;
    Epilogue epilogue;
    int alignment;
  };
  const std::vector<Sizes> list = {{64'000, 200, 100, false, true, Epilogue::add_bias, 16},
                                   {64'000, 100, 200, false, false, Epilogue::nothing, 16},
                                   {200, 100, 64'000, true, false, Epilogue::sum_columns, 16},
                                   {4096, 3072, 1024, false, true, Epilogue::add_bias, 16},
                                   {77, 33, 1001, true, false, Epilogue::sum_columns, 4},
                                   {1001, 7, 35, false, true, Epilogue::nothing, 4}};
  for (const Sizes& sizes : list) {
    if (!takes_next()) continue;
    ProductShape shape{.epilogue = sizes.epilogue};
    shape.m = sizes.m, shape.n = sizes.n, shape.k = sizes.k;
    shape.a_transposed = sizes.a_transposed, shape.b_transposed = sizes.b_transposed;
    shape.a_stride = sizes.a_transposed ? sizes.m : sizes.k;
    shape.b_stride = sizes.b_transposed ? sizes.k : sizes.n;
    shape.d_stride = sizes.n;
    shape.a_alignment = shape.b_alignment = shape.d_alignment = sizes.alignment;
    plan::GpuProductPlan plan = plan_gpu_product(problem_of(shape), chip(GetParam()));
    if (plan.pairs) plan = plan_product_without_pairs(problem_of(shape), chip(GetParam()));
    expect_sound(float_product_source(shape, plan), GetParam(), plan.threads() * plan.blocks);
  }
  for (const Index splits : {2, 8}) {
    EXPECT_EQ(report_of(compile_kernel(sum_splits_source(splits), GetParam()).log).spills, 0);
  }
}

/// Up to as many columns as a plan may give a warpgroup, which are as many as its registers hold.
TEST(Hopper, WarpgroupsFitTheirRegisters) {
  need_nvrtc(hopper);
  for (const bool a_transposed : {false, true}) {
    for (const bool b_transposed : {false, true}) {
      for (const Index k : {Index{48}, Index{4096}}) {
        ProductShape shape{.m = 1000, .n = 1000, .k = k, .a_transposed = a_transposed, .b_transposed = b_transposed};
        shape.a_stride = a_transposed ? shape.m : k, shape.b_stride = b_transposed ? k : shape.n, shape.d_stride = 1000;
        if (a_transposed) shape.epilogue = Epilogue::sum_columns;
        for (const plan::GpuProductPlan& plan : product_plans(problem_of(shape), chip(hopper))) {
          const bool first_or_last = plan.tiles_n == 1 || plan.tiles_n >= 13;
          if (!plan.warpgroups || plan.pairs || !first_or_last || (a_transposed && b_transposed)) continue;
          if (k == 48 && (a_transposed || b_transposed) && !test::compiles_all()) continue;
          expect_sound(float_product_source(shape, plan), hopper, plan.threads());
        }
      }
    }
  }
}

/// The widest tiles, whose sums, twice, take 192 registers, with every epilogue.
TEST(Hopper, ProductsOfPairsFit) {
  need_nvrtc(hopper);
  for (const bool transposed : {false, true}) {
    ProductShape shape{.m = 1000, .n = 1000, .k = 4096, .a_transposed = transposed, .b_transposed = !transposed};
    shape.a_stride = transposed ? shape.m : shape.k, shape.b_stride = transposed ? shape.n : shape.k;
    shape.d_stride = shape.n;
    shape.epilogue = transposed ? Epilogue::sum_columns : Epilogue::add_bias;
    for (const bool of_a : {false, true}) expect_sound(split_pairs_source(shape, of_a), hopper, 256);
    expect_sound(repair_product_source(shape), hopper, 512);
    for (const plan::GpuProductPlan& plan : product_plans(problem_of(shape), chip(hopper))) {
      const bool widest = plan.tiles_n == 24, narrowest = plan.tiles_n == 1 && transposed;
      if (plan.pairs && (widest || narrowest)) expect_sound(float_pairs_source(shape, plan), hopper, plan.threads());
    }
  }
}

TEST_P(EveryChip, StepsFit) {
  const std::vector<std::string> names = scan_cells();
  std::size_t turn = 0;
  for (const Storage storage : {Storage::f32, Storage::bf16, Storage::f16}) {
    for (const Index rows : {1, 100}) {
      for (const int alignment : {2, 4, 16}) {
        for (const std::string& cell : {widest_cell(), names[turn++ % names.size()]}) {
          if (alignment < size_of(storage) || !takes_next()) continue;
          const Compiled compiled =
              compile_kernel(step_source({.cell = cell, .storage = storage}, rows, alignment, 4), GetParam());
          const Report report = report_of(compiled.log);
          SCOPED_TRACE(compiled.log);
          EXPECT_EQ(report.stack, 0);
          EXPECT_EQ(report.spills, 0);
          EXPECT_EQ(report.shared, 0);
          EXPECT_THAT(compiled.log, testing::Not(testing::HasSubstr("warning")));
        }
      }
    }
  }
}

TEST_P(EveryChip, SumsFit) {
  for (const int alignment : {2, 16}) {
    const ColumnSums sums{.storage = Storage::bf16, .rows = 1000, .columns = 1000, .alignment = alignment};
    const Compiled compiled = compile_kernel(sum_columns_source(sums), GetParam());
    const Report report = report_of(compiled.log);
    SCOPED_TRACE(compiled.log);
    EXPECT_EQ(report.spills, 0);
    EXPECT_LE(report.shared, 16 * 32 * 4 * 4 + 16);
    EXPECT_THAT(compiled.log, testing::Not(testing::HasSubstr("warning")));
  }
}

std::string name_of_chip(const testing::TestParamInfo<int>& chip) { return "sm_" + std::to_string(chip.param); }
INSTANTIATE_TEST_SUITE_P(Hopper, EveryChip, testing::Values(hopper), name_of_chip);
INSTANTIATE_TEST_SUITE_P(Others, EveryChip, testing::ValuesIn(others), name_of_chip);

/// Every cell; storages, ragged rows and gates kept or not in turn, as these kernels take long to compile. The
/// multiplications must not wait for one another, which the compiler would say.
TEST(Hopper, ProductsWithARecurrenceAsEpilogueFit) {
  need_nvrtc(hopper);
  int turn = 0;
  for (const std::string& cell : scan_cells()) {
    const ScanRule rule = scan_rule(cell);
    const bool ragged = turn % 4 == 1, keeps = turn % 2 == 1;
    plan::GpuLayerProblem problem;
    problem.scan = subject(rule, turn % 4 == 2 ? Storage::f16 : Storage::bf16, false, ragged, 1024).problem;
    problem.scan.rows = 8, problem.scan.steps = 4096;
    problem.scan.algorithm = plan::ScanAlgorithm::epilogue;
    problem.input = 1024, problem.keep_gates = keeps;
    const plan::GpuScanPlan plan = plan_gpu_layer(problem, chip(hopper));
    const Compiled compiled = compile_kernel(epilogue_source(rule, problem, plan), hopper);
    const Report report = report_of(compiled.log);
    SCOPED_TRACE(plan.explain() + "\n" + compiled.log);
    EXPECT_EQ(report.stack, 0);
    EXPECT_EQ(report.spills, 0);
    EXPECT_THAT(compiled.log, testing::Not(testing::HasSubstr("warning")));
    EXPECT_THAT(compiled.log, testing::Not(testing::HasSubstr("serialized")));
    ++turn;
  }
}

TEST(CacheName, DependsOnWhatIsCompiled) {
  const GpuScanProblem problem{.channels = 64};
  const KernelSource source = scan_source(given_terms, problem, plan_gpu_scan(problem, chip(90)));
  KernelSource other = source;
  EXPECT_EQ(cache_name(source, 90), cache_name(other, 90));
  EXPECT_NE(cache_name(source, 90), cache_name(other, 80));
  other.plan += "!";
  EXPECT_EQ(cache_name(source, 90), cache_name(other, 90));
  other.constants.back().value = "true";
  EXPECT_NE(cache_name(source, 90), cache_name(other, 90));
}

TEST(Compile, SaysWhatIsWrong) {
  if (!find_nvrtc().valid()) GTEST_SKIP() << "no NVRTC: " << find_nvrtc().complaint;
  try {
    compile({"broken", "int x = y;", {}, {"--gpu-architecture=sm_80"}});
    FAIL() << "nonsense compiles";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::device_failure);
    EXPECT_THAT(error.what(), testing::HasSubstr("identifier \"y\" is undefined"));
  }
}

}  // namespace
}  // namespace penstock::cuda
