// A compiler that takes anything and makes eight bytes of it.

#include <cstring>
#include <string_view>

#include "backend/cuda/driver/api.h"
#include "fake_cuda/fake_cuda.h"

using namespace penstock::cuda;

namespace {

constexpr std::string_view cubin = "a cubin.", complaint = "as it was told";

}  // namespace

extern "C" {

penstock::test::FakeNvrtc* penstock_fake_nvrtc() {
  static penstock::test::FakeNvrtc nvrtc;
  return &nvrtc;
}

Result nvrtcVersion(int* major, int* minor) { return *major = 13, *minor = 0, result_success; }
Result nvrtcCreateProgram(ProgramHandle* program, const char*, const char*, int, const char* const*,
                          const char* const*) {
  return *program = reinterpret_cast<ProgramHandle>(std::uintptr_t{1} << 20), result_success;
}
Result nvrtcDestroyProgram(ProgramHandle*) { return result_success; }
Result nvrtcCompileProgram(ProgramHandle, int, const char* const*) {
  penstock::test::FakeNvrtc& nvrtc = *penstock_fake_nvrtc();
  ++nvrtc.compilations;
  if (nvrtc.compiling) nvrtc.compiling();
  return nvrtc.result;
}
Result nvrtcGetProgramLogSize(ProgramHandle, std::size_t* bytes) {
  return *bytes = penstock_fake_nvrtc()->result == result_success ? 0 : complaint.size() + 1, result_success;
}
Result nvrtcGetProgramLog(ProgramHandle, char* log) {
  return std::memcpy(log, complaint.data(), complaint.size() + 1), result_success;
}
Result nvrtcGetCUBINSize(ProgramHandle, std::size_t* bytes) { return *bytes = cubin.size(), result_success; }
Result nvrtcGetCUBIN(ProgramHandle, char* to) { return std::memcpy(to, cubin.data(), cubin.size()), result_success; }
Result nvrtcGetNumSupportedArchs(int* count) { return *count = 2, result_success; }
Result nvrtcGetSupportedArchs(int* all) { return all[0] = 80, all[1] = 90, result_success; }

}  // extern "C"
