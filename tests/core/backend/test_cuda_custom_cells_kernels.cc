// Cells that a program defines compile into the kernels of every engine, as the library's own do: no register spilled
// where those spill none. Needs NVRTC, and no GPU.

#include "backend/cuda/dense/source.h"
#include "backend/cuda/driver/kernel_cache.h"
#include "backend/cuda/scan/epilogue.h"
#include "backend/cuda/scan/fused.h"
#include "backend/cuda/scan/step.h"
#include "custom/random_cell.h"
#include "oracle/written_cells.h"
#include "plan/custom_cells.h"
#include "support/compiled_kernel.h"
#include "support/expect_error.h"

namespace penstock::cuda {
namespace {

using plan::DenseAlgorithm;
using plan::GpuDenseProblem;
using plan::Storage;

std::string defined(const test::WrittenCell& written) {
  return std::string(define_cell(written.definition, written.equations).name);
}

GpuDenseProblem problem_of(const std::string& cell, Storage storage, Index head, Index rows, DenseAlgorithm algorithm) {
  GpuDenseProblem problem;
  problem.cell = cell, problem.storage = storage;
  problem.rows = rows, problem.steps = 1000;
  problem.hidden = head;
  problem.algorithm = algorithm;
  return problem;
}

struct Engine {
  std::string name;
  DenseAlgorithm algorithm;
  Storage storage;
  Index head, rows;
  int oldest;  ///< Architecture from which on there is the engine.
  bool ragged = false, restarts = false;
};

std::ostream& operator<<(std::ostream& out, const Engine& engine) { return out << engine.name; }

std::vector<Engine> engines();
std::vector<std::string> written_dense();

/// Returns whether the sample has a cell with an engine: the cell of most states with all, the others with every other
/// engine each.
bool is_sampled(const std::string& engine, const std::string& cell) {
  const std::vector<Engine> all = engines();
  const std::vector<std::string> cells = written_dense();
  const auto at = std::find_if(all.begin(), all.end(), [&](const Engine& e) { return e.name == engine; }) - all.begin();
  const auto place = std::find(cells.begin(), cells.end(), cell) - cells.begin();
  return plan::cell_traits(cell).states() > 2 || (at + place) % 2 == 0;
}

class OwnDenseKernels : public testing::TestWithParam<std::tuple<Engine, std::string, int>> {};

TEST_P(OwnDenseKernels, FitTheirRegisters) {
  const auto& [engine, cell, chip] = GetParam();
  if (chip < engine.oldest) GTEST_SKIP() << "not on sm_" << chip;
  test::need_nvrtc(chip);
  test::need_sample(chip == 90 && is_sampled(engine.name, cell));
  if (IsSkipped()) return;
  GpuDenseProblem problem = problem_of(cell, engine.storage, engine.head, engine.rows, engine.algorithm);
  problem.ragged = problem.reverse = engine.ragged;
  problem.reset = engine.ragged || engine.restarts, problem.restarts = engine.restarts;
  problem.every_state = engine.ragged && plan::cell_traits(cell).states() > 1;
  if (engine.algorithm == DenseAlgorithm::warpgroup && plan::cell_traits(cell).gates() > 4) {
    test::expect_error(ErrorCode::unsupported, "warpgroups apply cells of one phase and at most 4 gates",
                       [&] { plan_gpu_dense(problem, test::chip(chip)); });
    return;
  }
  for (const bool backward : {false, true}) {
    problem.backward = backward, problem.training = !backward;
    problem.clipped = backward && engine.ragged;
    const plan::GpuDensePlan plan = plan_gpu_dense(problem, test::chip(chip));
    SCOPED_TRACE(backward ? "backward" : "forward");
    EXPECT_EQ(plan.algorithm, engine.algorithm);
    test::expect_sound(dense_source(problem, plan), chip, plan.threads() * plan.blocks);
  }
}

std::vector<Engine> engines() {
  return {{"head", DenseAlgorithm::head, Storage::bf16, 128, 1000, 80},
          {"head_ragged", DenseAlgorithm::head, Storage::f32, 64, 1000, 80, true},
          {"cluster", DenseAlgorithm::cluster, Storage::bf16, 512, 16, 90},
          {"cluster_ragged", DenseAlgorithm::cluster, Storage::f32, 256, 16, 90, true},
          {"cluster_restarts", DenseAlgorithm::cluster, Storage::bf16, 256, 128, 90, false, true},
          {"chip", DenseAlgorithm::chip, Storage::bf16, 640, 16, 80},
          {"chip_large", DenseAlgorithm::chip, Storage::bf16, 1024, 16, 90, true},
          {"warpgroup", DenseAlgorithm::warpgroup, Storage::bf16, 1024, 64, 90},
          {"warpgroup_ragged", DenseAlgorithm::warpgroup, Storage::f16, 512, 512, 90, true},
          {"step", DenseAlgorithm::step, Storage::bf16, 640, 16, 80, true}};
}

std::vector<std::string> written_dense() {
  return {defined(test::written_lstm()), defined(test::written_gru()), defined(test::written_slstm()),
          defined(test::written_peephole()), defined(test::written_leaky_lstm())};
}

std::string name_of(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Cuda, OwnDenseKernels,
                         testing::Combine(testing::ValuesIn(engines()), testing::ValuesIn(written_dense()),
                                          testing::Values(80, 90)),
                         [](const auto& of) {
                           return fmt::format("{}_{}_sm_{}", std::get<0>(of.param).name, name_of(std::get<1>(of.param)),
                                              std::get<2>(of.param));
                         });

class CustomCellKernels : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    test::need_nvrtc(GetParam());
    test::need_sample(GetParam() == 90);
  }

  /// All kernels of diagonal matrices, of which those in pieces differentiate the text of the cell.
  void compile_diagonals(const std::string& cell, bool sound) const {
    for (const bool backward : {false, true}) {
      GpuDenseProblem problem = problem_of(cell, Storage::f32, 100, 2, DenseAlgorithm::automatic);
      problem.heads = 100, problem.steps = 50'000;
      problem.backward = backward, problem.training = !backward;
      const plan::GpuDensePlan plan = plan_gpu_dense(problem, test::chip(GetParam()));
      ASSERT_EQ(plan.algorithm, DenseAlgorithm::diagonal);
      for (const DiagonalPart part :
           {DiagonalPart::pieces, DiagonalPart::between, backward ? DiagonalPart::chains : DiagonalPart::exact}) {
        SCOPED_TRACE(fmt::format("{}, {}", cell, static_cast<int>(part)));
        compile(dense_diagonal_source(problem, plan, part), plan.threads(), sound);
      }
    }
  }

  /// All kernels of scans.
  void fit_scans(const std::string& cell) const;

  void compile(const KernelSource& source, int threads, bool sound) const {
    if (sound) return test::expect_sound(source, GetParam(), threads);
    const Compiled compiled = compile_kernel(source, GetParam());
    EXPECT_THAT(compiled.log, testing::Not(testing::HasSubstr("warning"))) << compiled.log << source.text();
  }
};

TEST_P(CustomCellKernels, OfDiagonalsFitTheirRegisters) {
  for (const std::string& cell : written_dense()) compile_diagonals(cell, true);
}

plan::GpuLayerProblem layer_of(const ScanRule& rule, Storage storage, Index size, plan::ScanAlgorithm algorithm) {
  plan::GpuLayerProblem problem;
  problem.scan = {.storage = storage, .rows = 8, .steps = 4096, .channels = size};
  problem.scan.gates = problem.scan.read_back = rule.gates;
  problem.scan.learnt = rule.learnt;
  problem.scan.computed = true;
  problem.scan.algorithm = algorithm;
  problem.input = size, problem.keep_gates = true;
  return problem;
}

TEST_P(CustomCellKernels, OfScansFitTheirRegisters) {
  for (const std::string& cell : {defined(test::written_mingru()), defined(test::written_leaky())}) fit_scans(cell);
}

void CustomCellKernels::fit_scans(const std::string& cell) const {
  SCOPED_TRACE(cell);
  const ScanRule rule = scan_rule(cell);
  for (const plan::ScanAlgorithm algorithm : {plan::ScanAlgorithm::scan, plan::ScanAlgorithm::direct}) {
    for (const bool backward : {false, true}) {
      plan::GpuScanProblem problem = layer_of(rule, Storage::bf16, 1024, algorithm).scan;
      problem.backward = backward, problem.lengths = problem.reset = backward;
      const plan::GpuScanPlan plan = plan_gpu_scan(problem, test::chip(GetParam()));
      compile(scan_source(rule, problem, plan), plan.threads() * plan.blocks, true);
    }
  }
  const plan::GpuLayerProblem fused = layer_of(rule, Storage::f32, 100, plan::ScanAlgorithm::fused);
  const plan::GpuScanPlan plan = plan_gpu_layer(fused, test::chip(GetParam()));
  compile(fused_source(rule, fused, plan, 16), plan.threads(), true);
  compile(step_source({.cell = cell, .storage = Storage::bf16}, 1, 16, 4), 1, true);
  if (GetParam() < 90) return;
  const plan::GpuLayerProblem epilogue = layer_of(rule, Storage::bf16, 1024, plan::ScanAlgorithm::epilogue);
  const plan::GpuScanPlan of_epilogue = plan_gpu_layer(epilogue, test::chip(GetParam()));
  const Compiled compiled = compile_kernel(epilogue_source(rule, epilogue, of_epilogue), GetParam());
  EXPECT_EQ(test::report_of(compiled.log).spills, 0) << compiled.log;
}

/// Heads of one warp, heads of several, and many heads.
TEST_P(CustomCellKernels, WithMeansFitTheirRegisters) {
  const std::string cell = defined(test::written_norm_lstm());
  struct Form {
    Index head, rows;
    DenseAlgorithm algorithm;
    Storage storage;
    int sums;  // bytes of a warp: two buffers of two pieces for each column of lanes
  };
  for (const Form& form : {Form{24, 16, DenseAlgorithm::head, Storage::bf16, 128},
                           {128, 1000, DenseAlgorithm::head, Storage::bf16, 256},
                           {64, 1000, DenseAlgorithm::head, Storage::f32, 256},
                           {40, 16, DenseAlgorithm::step, Storage::bf16, 64},
                           {512, 16, DenseAlgorithm::step, Storage::f32, 64}}) {
    for (const bool backward : {false, true}) {
      GpuDenseProblem problem = problem_of(cell, form.storage, 2 * form.head, form.rows, form.algorithm);
      problem.heads = 2;
      problem.backward = backward, problem.training = !backward;
      problem.ragged = problem.reset = problem.every_state = true;
      const plan::GpuDensePlan plan = plan_gpu_dense(problem, test::chip(GetParam()));
      SCOPED_TRACE(plan.explain());
      EXPECT_EQ(plan.algorithm, form.algorithm);
      test::expect_sound(dense_source(problem, plan), GetParam(), plan.threads() * plan.blocks,
                         form.sums * plan.threads() / 32);
    }
  }
}

/// Every operation, also differentiated.
TEST_P(CustomCellKernels, OfRandomCellsCompile) {
  Random random(31);
  for (int trial = 0; trial < 10; ++trial) {
    custom::CustomCell cell = test::random_cell(random, trial % 4 == 3, trial % 2 == 0);
    cell.name = fmt::format("random-kernel-{}", trial);
    const bool scan = cell.scan;
    const std::string name(plan::add_custom_cell(std::move(cell), "cell", ErrorCode::invalid_argument).info.name);
    SCOPED_TRACE(name);
    if (scan) {
      const ScanRule rule = scan_rule(name);
      plan::GpuScanProblem problem = layer_of(rule, Storage::f32, 64, plan::ScanAlgorithm::direct).scan;
      problem.backward = true;
      const plan::GpuScanPlan plan = plan_gpu_scan(problem, test::chip(GetParam()));
      compile(scan_source(rule, problem, plan), 1, false);
    } else {
      compile_diagonals(name, false);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cuda, CustomCellKernels, testing::Values(80, 90),
                         [](const auto& of) { return fmt::format("sm_{}", of.param); });

/// A cell with `width` values that all are read late, each more than once.
std::string crowded_cell(int width) {
  const std::string name = fmt::format("crowded-{}", width);
  define_cell(test::definition_of(name, {"h", "c", "n", "m"}, 4), [width](const CellSymbols& in) {
    std::vector<CellValue> values, next;
    for (int i = 0; i < width; ++i) {
      const auto gate = static_cast<std::size_t>(i % 4), state = static_cast<std::size_t>(i / 4 % 4);
      values.push_back(tanh(in.wx[gate] * (0.1 + i) + in.rh[gate] * (0.3 + i * i) + in.s[state]));
    }
    for (int k = 0; k < 4; ++k) {
      CellValue sum = in.s[static_cast<std::size_t>(k)];
      for (int i = 0; i < width; ++i) {
        sum =
            sum * values[static_cast<std::size_t>((i * (2 * k + 1) + k) % width)] + values[static_cast<std::size_t>(i)];
      }
      next.push_back(tanh(sum));
    }
    return next;
  });
  return name;
}

/// The matrix leaves registers to the values of a large cell.
TEST(CrowdedCustomCells, FitTheirRegisters) {
  constexpr int hopper = 90;
  test::need_nvrtc(hopper);
  if (IsSkipped()) return;
  for (const int width : {8, 16}) {
    for (const DenseAlgorithm algorithm : {DenseAlgorithm::head, DenseAlgorithm::cluster}) {
      GpuDenseProblem problem = problem_of(crowded_cell(width), Storage::bf16, 128, 16, algorithm);
      problem.backward = true;
      const plan::GpuDensePlan plan = plan_gpu_dense(problem, test::chip(hopper));
      test::expect_sound(dense_source(problem, plan), hopper, plan.threads() * plan.blocks);
    }
  }
}

/// The largest number of learnt vectors.
TEST(CrowdedCustomCells, FitTheirRegistersWithManyLearntVectors) {
  constexpr int hopper = 90;
  constexpr std::size_t vectors = 16;
  test::need_nvrtc(hopper);
  if (IsSkipped()) return;
  CellDefinition definition = test::definition_of("many-vectors", {"h", "c"}, 4);
  for (std::size_t k = 0; k < vectors; ++k) definition.learnt.push_back({fmt::format("p{}", k), 0.1});
  define_cell(definition, [](const CellSymbols& in) -> std::vector<CellValue> {
    CellValue c = in.s[1];
    for (std::size_t k = 0; k < vectors; ++k) c = c * in.p[k] + tanh(in.wx[k % 4] + in.rh[k % 4]);
    return {tanh(c), c};
  });
  for (const DenseAlgorithm algorithm :
       {DenseAlgorithm::head, DenseAlgorithm::cluster, DenseAlgorithm::chip, DenseAlgorithm::step}) {
    for (const bool backward : {false, true}) {
      GpuDenseProblem problem = problem_of("many-vectors", Storage::bf16, 128, 16, algorithm);
      problem.backward = backward, problem.training = !backward;
      const plan::GpuDensePlan plan = plan_gpu_dense(problem, test::chip(hopper));
      SCOPED_TRACE(plan.explain());
      test::expect_sound(dense_source(problem, plan), hopper, plan.threads() * plan.blocks);
    }
  }
}

TEST(CrowdedCustomCells, HaveFewLearntVectorsInWarpgroups) {
  CellDefinition definition = test::definition_of("five-vectors", {"h"}, 1);
  for (const char* name : {"a", "b", "c", "d", "e"}) definition.learnt.push_back({name, 0.1});
  define_cell(definition, [](const CellSymbols& in) -> std::vector<CellValue> {
    CellValue h = in.wx[0] + in.rh[0];
    for (const CellValue& vector : in.p) h = tanh(h * vector);
    return {h};
  });
  GpuDenseProblem problem = problem_of("five-vectors", Storage::bf16, 1024, 64, DenseAlgorithm::warpgroup);
  test::expect_error(ErrorCode::unsupported,
                     "warpgroups have registers for at most 4 learnt vectors, and five-vectors has 5",
                     [&] { plan_gpu_dense(problem, test::chip(90)); });
  problem.algorithm = DenseAlgorithm::automatic;
  EXPECT_NE(plan_gpu_dense(problem, test::chip(90)).algorithm, DenseAlgorithm::warpgroup);
}

TEST(CustomCellPlans, OfMeansAreThoseOfBlocksThatExchangeThem) {
  const std::string cell = defined(test::written_norm_lstm());
  const auto plan = [&](Index heads, DenseAlgorithm algorithm, int chip = 90) {
    GpuDenseProblem problem = problem_of(cell, Storage::f32, 3000, 16, algorithm);
    problem.heads = heads;
    return plan_gpu_dense(problem, test::chip(chip));
  };
  test::expect_error(ErrorCode::unsupported,
                     "the units of written-norm-lstm read means over their head, which one block computes for at most "
                     "1024 units, not 3000: use at least 3 heads, or a CPU",
                     [&] { plan(1, DenseAlgorithm::automatic); });
  EXPECT_EQ(plan(3, DenseAlgorithm::step).threads(), 1024);
  EXPECT_EQ(plan(12, DenseAlgorithm::automatic).algorithm, DenseAlgorithm::cluster);
  EXPECT_EQ(plan(100, DenseAlgorithm::automatic).algorithm, DenseAlgorithm::head);
  EXPECT_NE(plan(6, DenseAlgorithm::automatic).algorithm, DenseAlgorithm::step);
  for (const DenseAlgorithm algorithm : {DenseAlgorithm::warpgroup, DenseAlgorithm::diagonal}) {
    test::expect_error(
        ErrorCode::unsupported,
        "the units of written-norm-lstm read means over their head, which warpgroups and diagonals do not compute",
        [&] { plan(3000, algorithm); });
  }
}

/// Each mean reads the one before it: more exchanges of a step than clusters have barriers for, and than kernels count.
TEST(CustomCellPlans, HaveAsManyMeansInARowAsThereIsRoomFor) {
  const auto chain = [](int means) {
    const std::string name = fmt::format("means-{}", means);
    define_cell(test::definition_of(name, {"h"}, 1), [=](const CellSymbols& in) -> std::vector<CellValue> {
      CellValue h = in.wx[0] + in.rh[0];
      for (int i = 0; i < means; ++i) h = tanh(h - mean(h * h));
      return {h};
    });
    return problem_of(name, Storage::bf16, 256, 16, DenseAlgorithm::cluster);
  };
  EXPECT_EQ(plan_gpu_dense(chain(8), test::chip(90)).algorithm, DenseAlgorithm::cluster);
  test::expect_error(ErrorCode::unsupported,
                     "the cluster algorithm exchanges means at most 8 times a step, and means-9 needs 9",
                     [&] { plan_gpu_dense(chain(9), test::chip(90)); });
  test::expect_error(ErrorCode::unsupported,
                     "means-33 needs 33 means one after the other at each step, and a GPU computes at most 32",
                     [&] { plan_gpu_dense(chain(33), test::chip(90)); });
}

/// The kernels of cells with means, of heads whose units fill their blocks and that do not.
TEST(CellsWithMeans, FitTheirRegisters) {
  constexpr int hopper = 90;
  test::need_nvrtc(hopper);
  if (IsSkipped()) return;
  const std::string cell = defined(test::written_norm_lstm());
  struct Size {
    DenseAlgorithm algorithm;
    Storage storage;
    Index head, rows;
    int chip;
    bool ragged = false, sampled = true;
  };
  for (const auto& [algorithm, storage, head, rows, chip, ragged, sampled] :
       {Size{DenseAlgorithm::head, Storage::bf16, 64, 1000, 90},
        {DenseAlgorithm::head, Storage::bf16, 128, 16, 80, false, false},
        {DenseAlgorithm::head, Storage::f32, 33, 16, 90, true},
        {DenseAlgorithm::head, Storage::f32, 64, 1000, 100, true, false},
        {DenseAlgorithm::cluster, Storage::bf16, 256, 64, 90, false, false},
        {DenseAlgorithm::cluster, Storage::f32, 256, 64, 90, true},
        {DenseAlgorithm::cluster, Storage::bf16, 512, 64, 90, true, false},
        {DenseAlgorithm::cluster, Storage::f16, 301, 13, 100, true},
        {DenseAlgorithm::chip, Storage::bf16, 1024, 64, 90},
        {DenseAlgorithm::chip, Storage::bf16, 1024, 16, 80, true, false},
        {DenseAlgorithm::chip, Storage::f32, 1024, 64, 90, true, false},
        {DenseAlgorithm::chip, Storage::bf16, 512, 16, 100, false, false},
        {DenseAlgorithm::step, Storage::bf16, 1000, 16, 80, true, false}}) {
    if (!sampled && !test::compiles_all()) continue;
    GpuDenseProblem problem = problem_of(cell, storage, head, rows, algorithm);
    problem.alignment = static_cast<int>(std::min<Index>(16, (head * size_of(storage)) & -(head * size_of(storage))));
    problem.ragged = problem.reset = problem.reverse = problem.every_state = ragged;
    for (const bool backward : {false, true}) {
      problem.backward = backward, problem.training = !backward;
      problem.clipped = backward && ragged;
      const plan::GpuDensePlan plan = plan_gpu_dense(problem, test::chip(chip));
      SCOPED_TRACE(fmt::format("sm_{}, {} units in {}: {}", chip, head, to_string(storage), plan.explain()));
      test::expect_no_spills(dense_source(problem, plan), chip, plan.threads() * plan.blocks);
    }
  }
}

TEST(CrowdedCustomCells, AreTooLargeForWarpgroups) {
  const std::string cell = crowded_cell(16);
  GpuDenseProblem problem = problem_of(cell, Storage::bf16, 1024, 64, DenseAlgorithm::warpgroup);
  test::expect_error(ErrorCode::unsupported,
                     "warpgroups have registers for cells of at most 64 values at a time, and crowded-16 has 128",
                     [&] { plan_gpu_dense(problem, test::chip(90)); });
  problem.algorithm = DenseAlgorithm::automatic;
  EXPECT_NE(plan_gpu_dense(problem, test::chip(90)).algorithm, DenseAlgorithm::warpgroup);
}

/// The name of a cell is no part of its kernels: the equations are, so that no kernel is taken for another's.
TEST(CustomCellKernelNames, DependOnTheEquations) {
  const auto name_of_kernel = [](const std::string& cell) {
    const GpuDenseProblem problem = problem_of(cell, Storage::bf16, 64, 16, DenseAlgorithm::head);
    return cache_name(dense_source(problem, plan_gpu_dense(problem, test::chip(90))), 90);
  };
  const std::string lstm = name_of_kernel(defined(test::written_lstm()));
  EXPECT_EQ(name_of_kernel(defined(test::written_lstm("lstm-again"))), lstm);
  test::WrittenCell other = test::written_lstm("lstm-with-half-an-output");
  other.equations = [](const CellSymbols& in) {
    std::vector<CellValue> states = test::written_lstm().equations(in);
    states[0] = states[0] * 0.5;
    return states;
  };
  EXPECT_NE(name_of_kernel(defined(other)), lstm);
}

}  // namespace
}  // namespace penstock::cuda
