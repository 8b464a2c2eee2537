// Programs of recurrent stacks on a GPU against the oracle, and to the bit with themselves; skipped where there is
// none.

#include "nn/cuda_programs.h"

namespace penstock::test {
namespace {

TEST_P(CudaPrograms, AgreeWithTheOracle) {
  for (const GpuCase& of : gpu_cases()) check(of);
  for (const GpuCase& of : gradient_gpu_cases()) check(of);
}

TEST_P(CudaPrograms, TakeTheInputProductOfTheCaller) {
  for (const GpuCase& of : projected_gpu_cases()) check(of);
}

TEST_P(CudaPrograms, StartRowsAgainAtGivenStates) {
  if (plan::cell_traits(cell).phases == 2) GTEST_SKIP() << "clusters do not run it";
  const std::vector<Case> cases = {
      {.name = "heads", .input = 5, .hidden = 34, .heads = 2, .rows = 5, .steps = 17, .reset = true},
      {.name = "layers", .input = 8, .hidden = 32, .layers = 3, .rows = 9, .steps = 21, .reset = true},
      {.name = "clipped",
       .hidden = 33,
       .direction = Direction::reverse,
       .rows = 5,
       .steps = 11,
       .form = RowForm::lengths,
       .layout = Layout::time_first,
       .reset = true,
       .gradient_clip = 0.2},
      {.name = "large", .input = 8, .hidden = 256, .rows = 17, .steps = 33, .reset = true, .every_state = true},
      {.name = "chip", .input = 8, .hidden = 1024, .rows = 8, .steps = 19, .reset = true},
  };
  for (Case c : cases) {
    c.every_state = c.every_state && info.states > 1;
    for (const Restarts restarts : {Restarts::one, Restarts::rows, Restarts::steps}) {
      check({.c = c, .master = c.layers > 1, .restarts = restarts});
      if (c.hidden % 8 == 0) check({.c = c, .aligned = true, .restarts = restarts});
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Each, CudaPrograms,
                         testing::Combine(testing::ValuesIn(cell_names()),
                                          testing::Values(DType::f32, DType::bf16, DType::f16)),
                         program_name);

TEST(CudaRecurrentProgram, SaysWhatIsMissing) {
  const std::string missing = cuda_info().missing;
  if (missing.empty()) GTEST_SKIP() << "there is a GPU";
  const RecurrentForm form{.dtype = DType::f32};
  const RecurrentSpec spec{.input_size = 3, .hidden_size = 5};
  expect_error(ErrorCode::unsupported, missing, [&] { RecurrentProgram::get(spec, form, {.device = Device::cuda()}); });
}

}  // namespace
}  // namespace penstock::test
