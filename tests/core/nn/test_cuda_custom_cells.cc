// Programs of cells that a program defined on a GPU, against a CPU in double precision; skipped where there is none.

#include "custom/random_cell.h"
#include "nn/cuda_programs.h"
#include "oracle/written_cells.h"
#include "plan/custom_cells.h"

namespace penstock::test {
namespace {

std::vector<std::string> written_cells() {
  std::vector<std::string> names;
  for (const WrittenCell& cell : {written_lstm(), written_gru(), written_slstm(), written_elman_relu(),
                                  written_mingru(), written_peephole(), written_leaky(), written_leaky_lstm()}) {
    names.emplace_back(define_cell(cell.definition, cell.equations).name);
  }
  return names;
}

/// The built-in cells, written as a program defines cells, and two with learnt vectors.
class CudaWrittenCells : public CudaPrograms {};

TEST_P(CudaWrittenCells, AgreeWithTheCpu) {
  for (const GpuCase& of : gpu_cases()) check(of);
  for (const GpuCase& of : gradient_gpu_cases()) check(of);
}

INSTANTIATE_TEST_SUITE_P(Each, CudaWrittenCells,
                         testing::Combine(testing::ValuesIn(written_cells()),
                                          testing::Values(DType::f32, DType::bf16, DType::f16)),
                         program_name);

/// Gradients of learnt vectors in the algorithms that share a matrix.
class CudaLearntVectors : public CudaPrograms {};

TEST_P(CudaLearntVectors, AgreeWithTheCpu) {
  struct Size {
    Index hidden, rows;
    const char* algorithm;
  };
  for (const auto& [hidden, rows, algorithm] :
       {Size{512, 13, "cluster: "}, {1024, 64, "warpgroup: "}, {1536, 16, "chip: "}}) {
    check({.c = {.name = fmt::format("learnt_{}", hidden),
                 .input = 8,
                 .hidden = hidden,
                 .rows = rows,
                 .steps = 6,
                 .form = RowForm::lengths,
                 .reset = true},
           .master = true,
           .aligned = true,
           .on_hopper = algorithm});
  }
}

std::vector<std::string> cells_with_vectors() {
  const WrittenCell cell = written_peephole();
  return {std::string(define_cell(cell.definition, cell.equations).name)};
}

INSTANTIATE_TEST_SUITE_P(Each, CudaLearntVectors,
                         testing::Combine(testing::ValuesIn(cells_with_vectors()),
                                          testing::Values(DType::bf16, DType::f16)),
                         program_name);

class CudaRandomCells : public CudaPrograms {};

/// In the engines of heads, of clusters or the chip, and of diagonal matrices.
TEST_P(CudaRandomCells, AgreeWithTheCpu) {
  struct Size {
    Index hidden, heads, rows;
  };
  for (const auto& [hidden, heads, rows] : {Size{33, 1, 2}, {264, 1, 70}, {24, 24, 3}}) {
    check({.c = {.name = fmt::format("random_{}_{}_{}", hidden, heads, rows),
                 .input = 3,
                 .hidden = hidden,
                 .heads = info.scan ? 1 : heads,
                 .rows = rows,
                 .steps = 4},
           .factor = 100});
  }
}

std::vector<std::string> random_cells() {
  std::vector<std::string> names;
  Random random(41);
  while (names.size() < 20) {
    custom::CustomCell cell = random_cell(random, names.size() % 4 == 3, true);
    cell.name = "random-" + std::to_string(names.size());
    names.emplace_back(plan::add_custom_cell(std::move(cell), "cell", ErrorCode::invalid_argument).info.name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Each, CudaRandomCells,
                         testing::Combine(testing::ValuesIn(random_cells()), testing::Values(DType::f32)),
                         program_name);

/// Cells whose units read means over their head. Norms magnify errors where units of a head are much alike.
class CudaMeans : public CudaPrograms {
 protected:
  void check_norm(GpuCase of) {
    of.factor = 10;
    check(of);
  }
};

TEST_P(CudaMeans, AgreeWithTheCpu) {
  for (const GpuCase& of : gpu_cases()) {
    if (of.c.form == RowForm::sorted) continue;  // stages are of algorithms that share a matrix
    check_norm(of);
  }
  for (const GpuCase& of : gradient_gpu_cases()) check_norm(of);
}

/// Heads whose units fill their warps and that do not, of one unit, and those that clusters and the whole chip share.
/// There are steps enough that the start of a pass over the whole chip does not decide.
TEST_P(CudaMeans, AgreeWithTheCpuInHeadsOfAllSizes) {
  struct Size {
    Index hidden, heads, rows;
    const char* algorithm;
  };
  for (const auto& [hidden, heads, rows, algorithm] : {Size{64, 2, 3, ""},
                                                       {33, 1, 3, ""},
                                                       {39, 3, 3, ""},
                                                       {5, 5, 3, ""},
                                                       {256, 1, 3, "cluster: "},
                                                       {300, 1, 40, "cluster: "},
                                                       {420, 2, 17, "cluster: "},
                                                       {1024, 1, 3, "chip: "},
                                                       {1000, 1, 6, "chip: "}}) {
    check_norm({.c = {.name = fmt::format("means_{}_{}", hidden, heads),
                      .input = 3,
                      .hidden = hidden,
                      .heads = heads,
                      .rows = rows,
                      .steps = 16,
                      .form = RowForm::lengths,
                      .reset = true},
                .on_hopper = algorithm});
  }
}

std::vector<std::string> cells_with_means() {
  std::vector<std::string> names;
  for (const WrittenCell& cell : {written_norm_lstm(), written_norm_peephole()}) {
    names.emplace_back(define_cell(cell.definition, cell.equations).name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Each, CudaMeans,
                         testing::Combine(testing::ValuesIn(cells_with_means()),
                                          testing::Values(DType::f32, DType::bf16, DType::f16)),
                         program_name);

TEST(CudaCustomCells, RefusesMeansOverHeadsThatNoBlockHolds) {
  if (const std::string missing = cuda_info().missing; !missing.empty()) GTEST_SKIP() << missing;
  const WrittenCell cell = written_norm_lstm();
  define_cell(cell.definition, cell.equations);
  const RecurrentSpec spec{.cell = cell.definition.name, .input_size = 3, .hidden_size = 2050};
  expect_error(ErrorCode::unsupported,
               "the units of written-norm-lstm read means over their head, which one block computes for at most 1024 "
               "units, not 2050: use at least 3 heads, or a CPU",
               [&] { RecurrentProgram::get(spec, {.dtype = DType::f32}, {.device = Device::cuda()}); });
}

}  // namespace
}  // namespace penstock::test
