// Messages of the runtime when something is missing or asked for too much, and memory and streams on a GPU.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "backend/cuda/driver/driver.h"
#include "backend/cuda/driver/graph.h"
#include "backend/cuda/driver/library.h"
#include "backend/cuda/driver/nvrtc.h"
#include "backend/cuda/scan/scan.h"
#include "base/check.h"
#include "penstock/system.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace penstock::cuda {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Library, SaysWhatWasWrong) {
  const Library none = Library::open("libnothing", {"libnothing.so.0"});
  EXPECT_FALSE(none.valid());
  EXPECT_EQ(none.complaint(), "libnothing was not found");
  EXPECT_EQ(none.symbol("anything"), nullptr);
  const test::TemporaryFolder folder;
  const std::string file = folder.write("libbroken.so", "no library at all");
  EXPECT_THAT(Library::open("libbroken", {file}).complaint(), HasSubstr(file));
}

TEST(Library, LooksWhereItIsTold) {
  ::setenv("PENSTOCK_CUDA_PATH", "/first:/second", 1);
  const std::vector<std::string> files = candidates({"libx.so"});
  ::unsetenv("PENSTOCK_CUDA_PATH");
  ASSERT_GE(files.size(), 3u);
  EXPECT_EQ(files[0], "/first/libx.so");
  EXPECT_EQ(files[1], "/second/libx.so");
  EXPECT_EQ(files[2], "libx.so");
}

TEST(Library, FindsThePackagesOfAVirtualEnvironment) {
  const test::TemporaryFolder folder;
  std::filesystem::create_directories(folder.path("lib/python3.9/site-packages/nvidia/cu13/lib"));
  ::setenv("VIRTUAL_ENV", folder.folder().c_str(), 1);
  const std::vector<std::string> files = candidates({"libx.so"});
  ::unsetenv("VIRTUAL_ENV");
  EXPECT_THAT(files, testing::Contains(folder.path("lib/python3.9/site-packages/nvidia/cu13/lib/libx.so")));
}

TEST(NoGpu, IsAnErrorThatSaysWhatIsMissing) {
  if (driver_complaint().empty()) GTEST_SKIP() << "there is a GPU";
  test::expect_error(ErrorCode::unsupported, "device cuda:1 is not there: " + driver_complaint(),
                     [] { Device::get(1); });
  EXPECT_EQ(device_count(), 0);
  EXPECT_EQ(cuda_info().missing, driver_complaint());
  EXPECT_TRUE(cuda_info().gpus.empty());
}

/// A call that nothing is wrong with, at addresses that nobody reads.
ScanForward sound_call() {
  const DeviceSequence sequence{1 << 20, 640, 64};
  return {.shape = {.rows = 3, .steps = 10, .channels = 64}, .terms = {sequence, sequence}, .y = sequence};
}

TEST(ScanArguments, AreChecked) {
  const auto refused = [](const std::string& text, const auto& change) {
    ScanForward call = sound_call();
    change(call);
    test::expect_error(ErrorCode::invalid_argument, text, [&] { problem_of(call); });
  };
  EXPECT_NO_THROW(problem_of(sound_call()));
  refused("a must be an address on the GPU, not null", [](ScanForward& c) { c.terms[0].data = 0; });
  refused("b must be aligned to its 4 bytes a value", [](ScanForward& c) { c.terms[1].data += 2; });
  refused("the step stride of y must be at least the 64 channels, not 63",
          [](ScanForward& c) { c.y.step_stride = 63; });
  refused("the row stride of y must be at least the 64 channels, not 1", [](ScanForward& c) { c.y.row_stride = 1; });
  refused("reach beyond any memory", [](ScanForward& c) { c.terms[0].row_stride = Index{1} << 60; });
  refused("rows, steps and channels must be at least 1, not 0", [](ScanForward& c) { c.shape.rows = 0; });
  refused("steps must be at most", [](ScanForward& c) { c.shape.steps = Index{1} << 31; });
  refused("lengths and cu_seqlens exclude each other",
          [](ScanForward& c) { c.shape.lengths = c.shape.cu_seqlens = 1 << 20; });
}

TEST(ScanArguments, AlignmentIsWhatAllHaveInCommon) {
  ScanForward call = sound_call();
  EXPECT_EQ(problem_of(call).alignment, 16);
  call.terms[1].data += 8;
  EXPECT_EQ(problem_of(call).alignment, 8);
  call.y.step_stride = -65;
  EXPECT_EQ(problem_of(call).alignment, 4);
}

class OnGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (!driver_complaint().empty()) GTEST_SKIP() << driver_complaint();
  }
};

TEST_F(OnGpu, DescribesItself) {
  const CudaInfo info = cuda_info();
  EXPECT_EQ(info.missing, "");
  ASSERT_FALSE(info.gpus.empty());
  EXPECT_GT(info.gpus[0].multiprocessors, 0);
  EXPECT_GT(info.gpus[0].memory_bytes, 1 << 30);
  EXPECT_NE(info.compiler_at, "");
}

TEST_F(OnGpu, RefusesANumberThatNoGpuHas) {
  test::expect_error(ErrorCode::invalid_argument, "device must be 0 to", [] { Device::get(1000); });
  test::expect_error(ErrorCode::invalid_argument, "not -1", [] { Device::get(-1); });
}

TEST_F(OnGpu, OutOfMemoryIsAnErrorAndNotTheEnd) {
  Stream stream(Device::get(0));
  test::expect_error(ErrorCode::out_of_memory, "cannot give 16777216 MB",
                     [&] { Buffer(stream, std::size_t{1} << 44); });
  Buffer buffer(stream, 1000);
  buffer.fill(7);
  std::vector<unsigned char> bytes(1000);
  buffer.download(bytes.data(), bytes.size());
  EXPECT_THAT(bytes, testing::Each(7));
}

TEST_F(OnGpu, ScansCanBeCapturedAndReplayed) {
  Stream stream(Device::get(0));
  constexpr Index steps = 3000, channels = 64;
  const std::vector<float> ones(steps * channels, 1.0f);
  Buffer a(stream, ones.size() * 4), y(stream, ones.size() * 4), state(stream, channels * 4);
  a.upload(ones.data(), a.bytes());
  state.fill(0);
  const DeviceSequence in{a.address(), steps * channels, channels}, out{y.address(), steps * channels, channels};
  ScanForward call{.shape = {.rows = 1, .steps = steps, .channels = channels}, .terms = {in, in}, .y = out};
  call.state_in = call.state_out = state.address();
  const ScanExecutable executable(stream.device(), call);
  Buffer workspace(stream, executable.workspace_bytes());
  workspace.fill(0);
  const unsigned long long before = Kernel::launches();
  const Graph graph(stream, [&] { executable.run(call, workspace.address(), stream.handle()); });
  EXPECT_EQ(Kernel::launches(), before + 1);
  for (int i = 0; i < 5; ++i) graph.launch(stream.handle());
  std::vector<float> last(channels);
  state.download(last.data(), state.bytes());
  EXPECT_THAT(last, testing::Each(5.0f * steps)) << "each replay goes on from the state that the last one left";
}

TEST_F(OnGpu, ARecordingThatFailsLeavesTheStreamAsItWas) {
  Stream stream(Device::get(0));
  test::expect_error(ErrorCode::invalid_argument, "no work",
                     [&] { const Graph graph(stream, [] { fail(ErrorCode::invalid_argument, "no work"); }); });
  Buffer buffer(stream, 100);
  buffer.fill(3);
  std::vector<unsigned char> bytes(100);
  buffer.download(bytes.data(), bytes.size());
  EXPECT_THAT(bytes, testing::Each(3));
}

}  // namespace
}  // namespace penstock::cuda
