#include "backend/cuda/driver/memory_pool.h"

#include <atomic>
#include <cstdint>

#include "backend/cuda/driver/driver.h"

namespace penstock::cuda {
namespace {

std::atomic<unsigned long long> allocation_count{0};

}  // namespace

void MemoryPool::open(int gpu) {
  PoolProperties properties;
  properties.location_id = gpu;
  check(driver().pool_create(&handle_, &properties), "making a memory pool");
  std::uint64_t keep_all = ~std::uint64_t{0};
  check(driver().pool_set(handle_, pool_release_threshold, &keep_all), "setting up the memory pool");
}

DeviceAddress MemoryPool::allocate(std::size_t bytes, StreamHandle stream) {
  DeviceAddress address = 0;
  const Result result = driver().allocate_async(&address, bytes, handle_, stream);
  if (result == result_out_of_memory) return 0;
  check(result, "allocating memory of the GPU");
  allocation_count.fetch_add(1, std::memory_order_relaxed);
  return address;
}

void MemoryPool::free(DeviceAddress address, StreamHandle stream) noexcept { driver().free_async(address, stream); }

unsigned long long MemoryPool::allocations() { return allocation_count.load(std::memory_order_relaxed); }

}  // namespace penstock::cuda
