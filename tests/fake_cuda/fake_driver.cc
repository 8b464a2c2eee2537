// Functions of a driver that have something to say.

#include <cstdlib>
#include <cstring>

#include "backend/cuda/driver/api.h"
#include "fake_cuda/fake_cuda.h"

using namespace penstock::cuda;

namespace {

/// Where a device says that an address is, a number that is not null.
void* const something = reinterpret_cast<void*>(std::uintptr_t{1} << 20);

int attribute(int which) {
  const penstock::test::FakeDriver& driver = *penstock_fake_driver();
  switch (which) {
    case attribute_compute_major:
      return driver.compute / 10;
    case attribute_compute_minor:
      return driver.compute % 10;
    case attribute_multiprocessors:
      return 132;
    case attribute_threads_per_multiprocessor:
      return 2048;
    case attribute_registers_per_multiprocessor:
      return 65'536;
    case attribute_shared_memory_per_multiprocessor:
      return 228 << 10;
    case attribute_shared_memory_per_block_optin:
      return 227 << 10;
    case attribute_l2_bytes:
      return 50 << 20;
    case attribute_clock_rate:
      return 1'980'000;
    case attribute_memory_pools:
      return driver.memory_pools ? 1 : 0;
    default:
      return 0;
  }
}

Result launch(void* const* arguments, unsigned grid) {
  penstock::test::FakeDriver& driver = *penstock_fake_driver();
  driver.grid = grid;
  ++driver.launches;
  if (driver.launching) driver.launching(arguments);
  return driver.launch_result;
}

/// Returns the size of a launch's clusters by its attributes.
unsigned cluster_of(const LaunchConfig& config) {
  for (unsigned i = 0; i < config.attribute_count; ++i) {
    if (config.attributes[i].id == launch_cluster) return config.attributes[i].value[0];
  }
  return 1;
}

}  // namespace

extern "C" {

penstock::test::FakeDriver* penstock_fake_driver() {
  static penstock::test::FakeDriver driver;
  return &driver;
}

std::uintptr_t penstock_fake_recorded() { return reinterpret_cast<std::uintptr_t>(penstock_fake_driver()->recorded); }
int penstock_fake_device_waits() { return penstock_fake_driver()->device_waits; }

Result cuInit(unsigned) { return penstock_fake_driver()->init_result; }
Result cuDriverGetVersion(int* version) { return *version = penstock_fake_driver()->version, result_success; }
Result cuGetErrorName(Result, const char** name) { return *name = "CUDA_ERROR_OF_A_TEST", result_success; }
Result cuGetErrorString(Result, const char** text) { return *text = "as it was told", result_success; }
Result cuDeviceGetCount(int* count) { return *count = penstock_fake_driver()->devices, result_success; }
Result cuDeviceGet(int* device, int ordinal) { return *device = ordinal, result_success; }
Result cuDeviceGetName(char* name, int size, int) {
  std::strncpy(name, "chip of a test", static_cast<std::size_t>(size));
  return result_success;
}
Result cuDeviceGetAttribute(int* value, int which, int) { return *value = attribute(which), result_success; }
Result cuDeviceTotalMem_v2(std::size_t* bytes, int) { return *bytes = std::size_t{1} << 34, result_success; }
Result cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  return *free = penstock_fake_driver()->memory, *total = std::size_t{1} << 34, result_success;
}
Result cuDevicePrimaryCtxRetain(ContextHandle* context, int) {
  return *context = static_cast<ContextHandle>(something), result_success;
}
Result cuModuleLoadData(ModuleHandle* module, const void*) {
  return *module = static_cast<ModuleHandle>(something), result_success;
}
Result cuModuleGetFunction(FunctionHandle* function, ModuleHandle, const char*) {
  return *function = static_cast<FunctionHandle>(something), result_success;
}
Result cuFuncGetAttribute(int* value, int, FunctionHandle) { return *value = 32, result_success; }
Result cuLaunchKernel(FunctionHandle, unsigned grid, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                      StreamHandle, void** arguments, void**) {
  return launch(arguments, grid);
}
Result cuLaunchKernelEx(const LaunchConfig* config, FunctionHandle, void** arguments, void**) {
  return launch(arguments, config->grid[0]);
}
Result cuOccupancyMaxActiveBlocksPerMultiprocessor(int* count, FunctionHandle, int, std::size_t) {
  return *count = 1, result_success;
}
Result cuOccupancyMaxActiveClusters(int* count, FunctionHandle, const LaunchConfig* config) {
  const penstock::test::FakeDriver& driver = *penstock_fake_driver();
  if (cluster_of(*config) > static_cast<unsigned>(driver.largest_cluster)) return result_invalid_cluster;
  return *count = driver.clusters_at_once, result_success;
}
Result cuStreamCreate(StreamHandle* stream, unsigned) {
  return *stream = static_cast<StreamHandle>(something), result_success;
}
Result cuMemPoolCreate(PoolHandle* pool, const PoolProperties*) {
  return *pool = static_cast<PoolHandle>(something), result_success;
}
Result cuMemAllocFromPoolAsync(DeviceAddress* address, std::size_t bytes, PoolHandle, StreamHandle) {
  if (bytes > penstock_fake_driver()->memory) return result_out_of_memory;
  *address = reinterpret_cast<DeviceAddress>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  return result_success;
}
Result cuMemFreeAsync(DeviceAddress address, StreamHandle) {
  std::free(reinterpret_cast<void*>(address));
  return result_success;
}
Result cuMemcpyHtoDAsync_v2(DeviceAddress to, const void* from, std::size_t bytes, StreamHandle) {
  return std::memcpy(reinterpret_cast<void*>(to), from, bytes), result_success;
}
Result cuMemcpyDtoHAsync_v2(void* to, DeviceAddress from, std::size_t bytes, StreamHandle) {
  return std::memcpy(to, reinterpret_cast<const void*>(from), bytes), result_success;
}
Result cuMemcpyDtoDAsync_v2(DeviceAddress to, DeviceAddress from, std::size_t bytes, StreamHandle) {
  return std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes), result_success;
}
Result cuPointerGetAttribute(void* device, int, DeviceAddress address) {
  if (address == 0) return 1;
  return *static_cast<int*>(device) = 0, result_success;
}
Result cuEventRecord(EventHandle, StreamHandle stream) {
  return penstock_fake_driver()->recorded = stream, result_success;
}
Result cuCtxSynchronize() { return ++penstock_fake_driver()->device_waits, result_success; }
Result cuMemsetD8Async(DeviceAddress to, unsigned char value, std::size_t bytes, StreamHandle) {
  return std::memset(reinterpret_cast<void*>(to), value, bytes), result_success;
}

}  // extern "C"
