// Programs of cells that a program defined on a GPU, against a CPU in double precision; skipped where there is none.

#include "formula/random_cell.h"
#include "nn/cuda_programs.h"
#include "oracle/written_cells.h"
#include "plan/defined_cells.h"

namespace penstock::test {
namespace {

std::vector<std::string> written_cells() {
  std::vector<std::string> names;
  for (const WrittenCell& cell : {written_lstm(), written_gru(), written_slstm(), written_elman_relu(),
                                  written_mingru(), written_peephole(), written_leaky()}) {
    names.emplace_back(define_cell(cell.definition, cell.equations).name);
  }
  return names;
}

/// The library's own cells, written as a program defines cells, and two with learnt vectors.
class CudaWrittenCells : public CudaPrograms {};

TEST_P(CudaWrittenCells, AgreeWithTheCpu) {
  for (const GpuCase& of : gpu_cases()) check(of);
  for (const GpuCase& of : gradient_gpu_cases()) check(of);
}

INSTANTIATE_TEST_SUITE_P(Each, CudaWrittenCells,
                         testing::Combine(testing::ValuesIn(written_cells()),
                                          testing::Values(DType::f32, DType::bf16, DType::f16)),
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
    formula::CellFormula cell = random_cell(random, names.size() % 4 == 3, true);
    cell.name = "random-" + std::to_string(names.size());
    names.emplace_back(plan::add_defined_cell(std::move(cell), "cell", ErrorCode::invalid_argument).info.name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Each, CudaRandomCells,
                         testing::Combine(testing::ValuesIn(random_cells()), testing::Values(DType::f32)),
                         program_name);

void expect_refused(const WrittenCell& cell, const std::string& why) {
  define_cell(cell.definition, cell.equations);
  const RecurrentSpec spec{.cell = cell.definition.name, .input_size = 3, .hidden_size = 5};
  expect_error(ErrorCode::unsupported, "device must be cpu for cell " + cell.definition.name + ", not cuda:0: " + why,
               [&] { RecurrentProgram::get(spec, {.dtype = DType::f32}, {.device = Device::cuda()}); });
}

TEST(CudaOwnCells, RefusesMeans) {
  expect_refused(written_norm_lstm(),
                 "its units read means over their head, and on a GPU the cells of a program do not");
}

}  // namespace
}  // namespace penstock::test
