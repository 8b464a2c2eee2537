#include "backend/cuda/driver/device.h"

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "backend/cuda/driver/driver.h"
#include "base/check.h"
#include "plan/tuning.h"

namespace penstock::cuda {
namespace {

/// Older chips lack the conversion to bf16 that kernels use.
constexpr int kOldestArchitecture = 80;

std::atomic<unsigned long long> synchronization_count{0};

int attribute(int handle, DeviceAttribute which) {
  int value = 0;
  check(driver().device_attribute(&value, which, handle), "asking for an attribute of the GPU");
  return value;
}

int handle_of(int ordinal) {
  int handle = 0;
  check(driver().device_get(&handle, ordinal), "finding the GPU");
  return handle;
}

}  // namespace

void require_address(DeviceAddress address, const char* name) {
  require(address != 0, "{} must be an address on the GPU, not null", name);
}

int device_count() {
  int count = 0;
  if (!driver_complaint().empty() || driver().device_count(&count) != result_success) return 0;
  return count;
}

plan::GpuModel describe_device(int ordinal) {
  const int handle = handle_of(ordinal);
  plan::GpuModel model;
  std::array<char, 256> name{};
  check(driver().device_name(name.data(), static_cast<int>(name.size()), handle), "asking for the name of the GPU");
  model.name = name.data();
  model.compute_major = attribute(handle, attribute_compute_major);
  model.compute_minor = attribute(handle, attribute_compute_minor);
  model.multiprocessors = attribute(handle, attribute_multiprocessors);
  model.threads = attribute(handle, attribute_threads_per_multiprocessor);
  model.registers = attribute(handle, attribute_registers_per_multiprocessor);
  model.shared_bytes = attribute(handle, attribute_shared_memory_per_multiprocessor);
  model.block_bytes = attribute(handle, attribute_shared_memory_per_block_optin);
  model.l2_bytes = attribute(handle, attribute_l2_bytes);
  std::size_t memory = 0;
  check(driver().device_memory(&memory, handle), "asking for the memory of the GPU");
  model.memory_bytes = static_cast<std::int64_t>(memory);
  model.clock_mhz = attribute(handle, attribute_clock_rate) / 1000;
  model.driver = driver_cuda_version();
  fill_in(model);
  take_tuning(model);
  return model;
}

std::string complaint_about(int ordinal, const plan::GpuModel& model) {
  if (model.architecture() >= kOldestArchitecture) return "";
  return fmt::format("GPU {} is a {} (compute capability {}.{}); {}.{} or newer is needed", ordinal, model.name,
                     model.compute_major, model.compute_minor, kOldestArchitecture / 10, kOldestArchitecture % 10);
}

Device& Device::get(int ordinal) {
  static std::mutex mutex;
  static std::vector<std::unique_ptr<Device>> devices;
  if (const std::string& why = driver_complaint(); !why.empty()) {
    fail(ErrorCode::unsupported, "device cuda:{} is not there: {}", ordinal, why);
  }
  const int count = device_count();
  require_argument(ordinal >= 0 && ordinal < count, "device", ordinal, "0 to {} (there {} {} GPU{})", count - 1,
                   count == 1 ? "is" : "are", count, count == 1 ? "" : "s");
  const std::lock_guard lock(mutex);
  devices.resize(static_cast<std::size_t>(count));
  auto& device = devices[static_cast<std::size_t>(ordinal)];
  if (!device) device.reset(new Device(ordinal));  // NOLINT(modernize-make-unique): the constructor is private
  return *device;
}

Device::Device(int ordinal) : ordinal_(ordinal), handle_(handle_of(ordinal)), model_(describe_device(ordinal)) {
  if (const std::string complaint = complaint_about(ordinal, model_); !complaint.empty()) {
    fail(ErrorCode::unsupported, "{}", complaint);
  }
  if (attribute(handle_, attribute_memory_pools) == 0) {
    fail(ErrorCode::unsupported, "GPU {} ({}) cannot allocate in stream order here", ordinal, model_.name);
  }
  check(driver().primary_retain(&context_, handle_), "starting the GPU");
  make_current();
  pool_.open(handle_);
}

void Device::make_current() const { check(driver().context_set(context_), "entering the GPU's context"); }

DeviceAddress Device::allocate(std::size_t bytes, StreamHandle stream) {
  make_current();
  const DeviceAddress address = pool_.allocate(bytes, stream);
  if (address == 0) {
    const std::size_t total = static_cast<std::size_t>(model_.memory_bytes);
    fail_with(ErrorCode::out_of_memory, bytes <= total ? kSharedMemoryRemedy : "",
              "GPU {} ({}) cannot give {} MB: {} of {} MB are free", ordinal_, model_.name, bytes >> 20,
              free_bytes() >> 20, total >> 20);
  }
  return address;
}

void Device::free(DeviceAddress address, StreamHandle stream) noexcept {
  driver().context_set(context_);
  MemoryPool::free(address, stream);
}

void Device::upload(DeviceAddress to, const void* from, std::size_t bytes, StreamHandle stream) const {
  make_current();
  check(driver().copy_to_device(to, from, bytes, stream), "copying to the GPU");
  check(driver().stream_synchronize(stream), "waiting for the GPU");
  synchronization_count.fetch_add(1, std::memory_order_relaxed);
}

std::size_t Device::free_bytes() const {
  make_current();
  std::size_t free = 0, total = 0;
  check(driver().memory_info(&free, &total), "asking for the free memory");
  return free;
}

Stream::Stream(Device& device) : device_(device) {
  device.make_current();
  check(driver().stream_create(&handle_, stream_non_blocking), "making a stream");
}

Stream::~Stream() { driver().stream_destroy(handle_); }

void Stream::synchronize() const {
  device_.make_current();
  check(driver().stream_synchronize(handle_), "waiting for the GPU");
  synchronization_count.fetch_add(1, std::memory_order_relaxed);
}

unsigned long long Stream::synchronizations() { return synchronization_count.load(std::memory_order_relaxed); }

Buffer::Buffer(Stream& stream, std::size_t bytes) : stream_(&stream), bytes_(bytes) {
  if (bytes > 0) address_ = stream.device().allocate(bytes, stream.handle());
}

Buffer::~Buffer() {
  if (address_ != 0) stream_->device().free(address_, stream_->handle());
}

Buffer::Buffer(Buffer&& other) noexcept
    : stream_(other.stream_), address_(std::exchange(other.address_, 0)), bytes_(std::exchange(other.bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(stream_, other.stream_);
  std::swap(address_, other.address_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

void Buffer::fill(unsigned char value) {
  if (bytes_ == 0) return;
  stream_->device().make_current();
  check(driver().fill_bytes(address_, value, bytes_, stream_->handle()), "filling memory of the GPU");
}

void Buffer::upload(const void* from, std::size_t bytes) {
  require_argument(bytes <= bytes_, "bytes", bytes, "at most the {} of the buffer", bytes_);
  if (bytes > 0) stream_->device().upload(address_, from, bytes, stream_->handle());
}

void Buffer::download(void* to, std::size_t bytes) const {
  require_argument(bytes <= bytes_, "bytes", bytes, "at most the {} of the buffer", bytes_);
  if (bytes == 0) return;
  stream_->device().make_current();
  check(driver().copy_to_host(to, address_, bytes, stream_->handle()), "copying from the GPU");
  stream_->synchronize();
}

}  // namespace penstock::cuda
