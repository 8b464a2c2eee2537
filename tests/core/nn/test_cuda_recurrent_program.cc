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
