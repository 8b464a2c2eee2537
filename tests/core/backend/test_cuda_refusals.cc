// Refusals of a driver become errors with their reason, or the next plan; kernels compile side by side. The tests use a
// fake driver and compiler (fake_cuda/), since no machine at hand refuses all of this.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <future>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "backend/cuda/dense/executable.h"
#include "backend/cuda/driver/driver.h"
#include "backend/cuda/driver/kernel.h"
#include "penstock/system.h"
#include "support/expect_error.h"
#include "support/fake_cuda.h"

namespace penstock::cuda {
namespace {

using test::fake_driver;
using test::fake_nvrtc;
using testing::HasSubstr;

constexpr const char* kFolder = PENSTOCK_FAKE_CUDA;

/// A driver is opened once a process, so each way in which none can be used takes a process of its own. It ends
/// with what the library says as its last words.
class NoDriverDeathTest : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  template <class Change>
  [[noreturn]] static void refuse(const std::string& folder, const Change& change) {
    test::look_for_cuda_in(folder);
    change();
    try {
      Device::get(0);
    } catch (const Error& error) {
      const bool said = cuda_info().missing == driver_complaint() && device_count() == 0;
      std::fprintf(stderr, "%s\n", error.what());
      std::_Exit(said && error.code() == ErrorCode::unsupported ? 0 : 1);
    }
    std::_Exit(1);
  }
};

TEST_F(NoDriverDeathTest, NoGpu) {
  EXPECT_EXIT(refuse(kFolder, [] { fake_driver().init_result = result_no_device; }), testing::ExitedWithCode(0),
              "device cuda:0 is not there: the NVIDIA driver sees no GPU");
  EXPECT_EXIT(refuse(kFolder, [] { fake_driver().devices = 0; }), testing::ExitedWithCode(0),
              "device cuda:0 is not there: the NVIDIA driver sees no GPU");
}

TEST_F(NoDriverDeathTest, TooOld) {
  EXPECT_EXIT(refuse(kFolder, [] { fake_driver().version = 12'030; }), testing::ExitedWithCode(0),
              "the NVIDIA driver runs CUDA 12.3 and 12.4 is needed; install a newer driver");
}

TEST_F(NoDriverDeathTest, LacksFunctions) {
  EXPECT_EXIT(refuse(std::string(kFolder) + "/old", [] {}), testing::ExitedWithCode(0),
              "old/libcuda.so.1 lacks cu[A-Z]");
}

TEST_F(NoDriverDeathTest, DoesNotStart) {
  constexpr Result some = 999;
  EXPECT_EXIT(refuse(kFolder, [] { fake_driver().init_result = some; }), testing::ExitedWithCode(0),
              "the NVIDIA driver does not start: CUDA_ERROR_OF_A_TEST \\(as it was told\\)");
}

class FakeCuda : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    test::look_for_cuda_in(kFolder);
    ::setenv("PENSTOCK_CACHE_DIR", "", 1);  // what is compiled here is no kernel
    ::setenv("PENSTOCK_PLANS", "", 1);
    ASSERT_EQ(driver_complaint(), "");
  }
  void TearDown() override {
    test::FakeDriver& driver = fake_driver();
    const test::FakeDriver well;
    driver.compute = well.compute, driver.memory_pools = well.memory_pools, driver.devices = well.devices;
    driver.largest_cluster = well.largest_cluster, driver.clusters_at_once = well.clusters_at_once;
    driver.launch_result = well.launch_result;
    fake_nvrtc().compiling = {}, fake_nvrtc().result = 0;
  }

  static KernelSource kernel(int number) {
    KernelSource source;
    source.entry = "Nothing", source.file = "nothing.cuh";
    source.constants = {{"constexpr int kNumber", number}};
    return source;
  }
};

TEST_F(FakeCuda, AChipThatIsTooOldIsRefusedByName) {
  fake_driver().devices = 2;
  fake_driver().compute = 75;
  const std::string complaint = "GPU 1 is a chip of a test (compute capability 7.5); 8.0 or newer is needed";
  test::expect_error(ErrorCode::unsupported, complaint, [] { Device::get(1); });
  EXPECT_THAT(cuda_info().missing, HasSubstr(complaint));
  EXPECT_EQ(cuda_info().gpus.size(), 2U);
  fake_driver().compute = 80;
  EXPECT_EQ(Device::get(1).model().architecture(), 80) << "a refusal is not remembered";
}

TEST_F(FakeCuda, AGpuWithoutMemoryPoolsIsRefused) {
  fake_driver().devices = 3;
  fake_driver().memory_pools = false;
  test::expect_error(ErrorCode::unsupported, "GPU 2 (chip of a test) cannot allocate in stream order here",
                     [] { Device::get(2); });
}

TEST_F(FakeCuda, TooLittleMemoryIsSaidInFigures) {
  Stream stream(Device::get(0));
  test::expect_error(ErrorCode::out_of_memory,
                     "GPU 0 (chip of a test) cannot give 3 MB: 1 of 16384 MB are free; if other processes hold it",
                     [&] { Buffer(stream, std::size_t{3} << 20); });
  EXPECT_NE(Buffer(stream, 1000).address(), 0U) << "nothing is lost";
}

TEST_F(FakeCuda, ALaunchThatFailsIsAnErrorInTheDriversWords) {
  Device& device = Device::get(0);
  const Kernel& loaded = Kernel::load(device, kernel(1));
  const int arguments = 0;
  fake_driver().launch_result = result_out_of_memory;
  test::expect_error(ErrorCode::out_of_memory,
                     "launching Nothing: the GPU has too little memory left; if other processes hold it",
                     [&] { loaded.launch(1, 32, arguments, nullptr); });
  fake_driver().launch_result = 720;
  test::expect_error(ErrorCode::device_failure, "launching Nothing failed: CUDA_ERROR_OF_A_TEST (as it was told)",
                     [&] { loaded.launch({.grid = 8, .block = 32, .cooperative = true}, arguments, nullptr); });
  const unsigned long long before = Kernel::launches();
  fake_driver().launch_result = result_success;
  loaded.launch(1, 32, arguments, nullptr);
  EXPECT_EQ(Kernel::launches(), before + 1);
}

/// Memory of one byte a value would do: nobody reads there.
DenseForward call_of(Index rows, Index hidden) {
  DenseForward call;
  call.batch.rows = rows, call.batch.steps = 8;
  call.wx = {1 << 20, 8 * 4 * hidden, 4 * hidden};
  call.y = {1 << 20, 8 * hidden, hidden};
  call.weights.recurrent = 1 << 20;
  return call;
}

DenseSpec lstm(Index hidden, plan::DenseAlgorithm algorithm = plan::DenseAlgorithm::automatic) {
  DenseSpec spec;
  spec.cell = "lstm", spec.storage = plan::Storage::bf16, spec.hidden = hidden, spec.algorithm = algorithm;
  return spec;
}

plan::GpuDensePlan plan_for(Index rows, const DenseSpec& spec) {
  return DenseForwardExecutable(Device::get(0), spec, call_of(rows, spec.hidden)).plan();
}

TEST_F(FakeCuda, ClustersThatTheDriverRefusesAreReplacedByTheNextPlan) {
  constexpr Index rows = 16, hidden = 768;
  DenseSpec spec = lstm(hidden);
  spec.cell = "elman";
  const plan::GpuDensePlan wanted = plan_for(rows, spec);
  ASSERT_EQ(wanted.algorithm, plan::DenseAlgorithm::cluster) << wanted.explain();
  const std::string reason = fmt::format("chip of a test runs only 0 clusters of {} blocks at once", wanted.cluster);
  // A smaller cluster, or another algorithm: whatever is the quickest of what is left.
  fake_driver().largest_cluster = wanted.cluster / 2;
  const plan::GpuDensePlan next = plan_for(rows, spec);
  EXPECT_LT(next.cluster, wanted.cluster);
  EXPECT_THAT(next.why, HasSubstr(reason));
  spec.algorithm = plan::DenseAlgorithm::cluster;
  EXPECT_EQ(plan_for(rows, spec).cluster, wanted.cluster / 2) << "the algorithm was asked for, its cluster was not";
  fake_driver().largest_cluster = 1;
  test::expect_error(ErrorCode::unsupported, reason, [&] { plan_for(rows, spec); });
  spec.algorithm = plan::DenseAlgorithm::automatic;
  const plan::GpuDensePlan last = plan_for(rows, spec);
  EXPECT_EQ(last.cluster, 1);
  EXPECT_THAT(last.why, HasSubstr(reason));
}

TEST_F(FakeCuda, TooFewClustersAtOnceAreReplacedByTheNextPlan) {
  constexpr Index rows = 256, hidden = 512;
  fake_driver().clusters_at_once = 1000;
  const DenseSpec spec = lstm(hidden, plan::DenseAlgorithm::chip);
  const plan::GpuDensePlan wanted = plan_for(rows, spec);
  ASSERT_EQ(wanted.algorithm, plan::DenseAlgorithm::chip);
  ASSERT_GT(wanted.cluster, 1) << wanted.explain();
  fake_driver().clusters_at_once = 3;
  const plan::GpuDensePlan next = plan_for(rows, spec);
  EXPECT_EQ(next.algorithm, plan::DenseAlgorithm::chip);
  EXPECT_EQ(next.cluster, 1);
  EXPECT_THAT(next.why, HasSubstr("runs only 3 clusters"));
}

/// A part of a GPU, for instance, has fewer of them than its multiprocessors let expect.
TEST_F(FakeCuda, TooFewClustersForWarpgroupsAreReplacedByTheNextPlan) {
  constexpr Index rows = 64, hidden = 1024, somewhere = 1 << 20;
  DenseBackward call;
  call.batch.rows = rows, call.batch.steps = 8;
  call.y = call.dy = {somewhere, 8 * hidden, hidden};
  call.weights.recurrent = somewhere;
  call.tape = {somewhere, somewhere};
  call.dwx = somewhere;
  const auto plan_for = [&] { return DenseBackwardExecutable(Device::get(0), lstm(hidden), call).plan(); };
  fake_driver().clusters_at_once = 1000;
  const plan::GpuDensePlan wanted = plan_for();
  ASSERT_EQ(wanted.algorithm, plan::DenseAlgorithm::warpgroup) << wanted.explain();
  ASSERT_GT(wanted.cluster, 1) << wanted.explain();
  fake_driver().clusters_at_once = 3;
  const plan::GpuDensePlan next = plan_for();
  EXPECT_TRUE(next.cluster == 1 || next.grid / next.cluster <= 3) << next.explain();
  EXPECT_THAT(next.why, HasSubstr("runs only 3 clusters"));
}

/// A plan of the caller's is no choice that was left open.
TEST_F(FakeCuda, ClustersThatWereAskedForAreAnError) {
  for (const auto algorithm : {plan::DenseAlgorithm::cluster, plan::DenseAlgorithm::chip}) {
    const DenseForward call = call_of(16, 768);
    plan::GpuDenseProblem problem = problem_of(call, lstm(768, algorithm));
    problem.cluster = algorithm == plan::DenseAlgorithm::chip ? 2 : 0;
    fake_driver().clusters_at_once = 1000, fake_driver().largest_cluster = 16;
    const plan::GpuDensePlan asked = plan_gpu_dense(problem, Device::get(0).model());
    ASSERT_GT(asked.cluster, 1);
    EXPECT_NO_THROW(DenseForwardExecutable(Device::get(0), lstm(768), call, asked));
    fake_driver().largest_cluster = 1;
    const std::string text = fmt::format(
        "chip of a test runs 0 clusters of {} blocks of the recurrence at once, not "
        "the {} of its plan",
        asked.cluster, algorithm == plan::DenseAlgorithm::chip ? asked.grid / asked.cluster : 1);
    test::expect_error(ErrorCode::unsupported, text,
                       [&] { DenseForwardExecutable(Device::get(0), lstm(768), call, asked); });
  }
}

/// Each compilation waits for the other one: one after the other they would wait until they give up.
TEST_F(FakeCuda, KernelsCompileSideBySide) {
  std::mutex mutex;
  std::condition_variable changed;
  int inside = 0, met = 0;
  fake_nvrtc().compiling = [&] {
    std::unique_lock lock(mutex);
    ++inside;
    changed.notify_all();
    if (changed.wait_for(lock, std::chrono::minutes(1), [&] { return inside == 2; })) ++met;
  };
  Device& device = Device::get(0);
  auto one = std::async(std::launch::async, [&] { return &Kernel::load(device, kernel(2)); });
  const Kernel* const other = &Kernel::load(device, kernel(3));
  EXPECT_NE(one.get(), other);
  EXPECT_EQ(met, 2) << "compilations in flight with another one";
}

TEST_F(FakeCuda, AKernelThatManyAskForCompilesOnce) {
  constexpr int threads = 4;
  std::atomic<int> asking = 0;
  fake_nvrtc().compiling = [&] {
    while (asking < threads) std::this_thread::yield();  // until all of them have come
  };
  const int before = fake_nvrtc().compilations;
  Device& device = Device::get(0);
  std::vector<std::future<const Kernel*>> loads;
  for (int i = 0; i < threads; ++i) {
    loads.push_back(std::async(std::launch::async, [&] {
      ++asking;
      return &Kernel::load(device, kernel(4));
    }));
  }
  std::set<const Kernel*> kernels;
  for (auto& load : loads) kernels.insert(load.get());
  EXPECT_EQ(kernels.size(), 1U);
  EXPECT_EQ(fake_nvrtc().compilations, before + 1);
}

TEST_F(FakeCuda, AKernelThatDoesNotCompileIsTriedAgain) {
  Device& device = Device::get(0);
  fake_nvrtc().result = 6;
  try {
    Kernel::load(device, kernel(5));
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::device_failure);
    EXPECT_STREQ(error.what(), "NVRTC cannot compile Nothing (error 6):\nas it was told");
  }
  fake_nvrtc().result = 0;
  EXPECT_NO_THROW(Kernel::load(device, kernel(5)));
}

}  // namespace
}  // namespace penstock::cuda
