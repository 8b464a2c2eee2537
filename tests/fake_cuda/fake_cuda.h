#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

/// A driver and a compiler of CUDA that do nothing but what a test tells them: files of the names and functions that
/// the library opens, for what no machine at hand has. Tests reach them by these two functions (fake_cuda() and
/// fake_nvrtc() of support/fake_cuda.h).
namespace penstock::test {

/// Answers of the driver. CUresult numbers; 0 is success.
struct FakeDriver {
  int version = 13'000;
  int init_result = 0;
  int devices = 1;
  int compute = 90;  ///< Of every device: 75 is a chip of sm_75.
  bool memory_pools = true;
  std::size_t memory = std::size_t{1} << 20;  ///< That an allocation may have, at most.
  int largest_cluster = 16;                   ///< Blocks
  int clusters_at_once = 16;
  int launch_result = 0;
  std::atomic<int> launches = 0;
  std::function<void(void* const* arguments)> launching = {};  ///< Called by each launch.
  std::atomic<unsigned> grid = 0;                              ///< Blocks of the last launch.
  void* recorded = nullptr;                                    ///< The stream of the last event.
  std::atomic<int> device_waits = 0;                           ///< Waits for all streams of a device.
};

struct FakeNvrtc {
  /// Called by the thread that compiles, while it compiles.
  std::function<void()> compiling = {};
  int result = 0;
  std::atomic<int> compilations = 0;
};

}  // namespace penstock::test

extern "C" {
penstock::test::FakeDriver* penstock_fake_driver();
penstock::test::FakeNvrtc* penstock_fake_nvrtc();
// For tests in Python.
std::uintptr_t penstock_fake_recorded();
int penstock_fake_device_waits();
}
