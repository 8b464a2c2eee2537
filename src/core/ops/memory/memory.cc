#include "ops/memory/memory.h"

#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "backend/cuda/driver/device.h"
#include "backend/cuda/driver/driver.h"
#include "backend/cuda/driver/staging.h"
#include "base/check.h"
#include "base/free_memory.h"
#include "ops/memory/cuda_queue.h"

namespace penstock::ops {

namespace {

constexpr std::align_val_t host_alignment{256};

cuda::DeviceAddress address(void* data) { return reinterpret_cast<cuda::DeviceAddress>(data); }

/// The system promises memory that it does not have, and ends the process that then uses it.
void* host_memory(std::size_t bytes) {
  constexpr std::size_t worth_asking = 32 << 20;  // from here on, asking takes a hundredth of what filling takes
  const std::size_t left = bytes < worth_asking ? 0 : free_memory();
  if (left == 0 || bytes <= left) {
    void* const memory = ::operator new(bytes, host_alignment, std::nothrow);
    if (memory != nullptr) return memory;
  }
  fail(ErrorCode::out_of_memory, "the host cannot give {} MB: {} MB are free", bytes >> 20, free_memory() >> 20);
}

}  // namespace

Queue::Queue(Device device) : device_(device) {
  if (device.is_cuda()) {
    cuda_ = std::make_unique<Cuda>(device.index);
  } else {
    require_about(device.index == 0, "device", ": there is one CPU device, not cpu:{}", device.index);
  }
}

Queue::~Queue() = default;

void* Queue::stream() const { return cuda_ ? cuda_->stream.handle() : nullptr; }

void Queue::synchronize() const {
  if (cuda_) cuda_->stream.synchronize();
}

void Queue::wait_for(void* stream) const {
  if (!cuda_) return;
  cuda_->stream.device().make_current();
  cuda::Event reached(cuda_->stream.device());
  reached.record(static_cast<cuda::StreamHandle>(stream));
  reached.hold_back(cuda_->stream.handle());
}

void clear_memory(Device device, void* memory, std::size_t bytes, void* stream) {
  if (bytes == 0) return;
  if (!device.is_cuda()) {
    std::memset(memory, 0, bytes);
    return;
  }
  cuda::Device::get(device.index).make_current();
  cuda::check(cuda::driver().fill_bytes(address(memory), 0, bytes, static_cast<cuda::StreamHandle>(stream)),
              "filling memory of the GPU");
}

void copy_memory(Device device, void* to, const void* from, std::size_t bytes, void* stream) {
  if (bytes == 0) return;
  if (!device.is_cuda()) {
    std::memmove(to, from, bytes);
    return;
  }
  cuda::Device::get(device.index).make_current();
  cuda::check(cuda::driver().copy_on_device(address(to), reinterpret_cast<cuda::DeviceAddress>(from), bytes,
                                            static_cast<cuda::StreamHandle>(stream)),
              "copying within the GPU");
}

void start_download(const Queue& queue, void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  if (queue.cuda() == nullptr) {
    std::memcpy(to, from, bytes);
    return;
  }
  const cuda::Stream& stream = queue.cuda()->stream;
  stream.device().make_current();
  cuda::check(cuda::driver().copy_to_host(to, reinterpret_cast<cuda::DeviceAddress>(from), bytes, stream.handle()),
              "copying from the GPU");
}

void write_word(Device device, unsigned long long* to, unsigned long long value, void* stream) {
  if (!device.is_cuda()) {
    *to = value;
    return;
  }
  // Fills take the value along. A recorded copy would read the host's memory when it is launched.
  cuda::Device::get(device.index).make_current();
  for (int half = 0; half < 2; ++half) {
    cuda::check(cuda::driver().fill_words(address(to) + 4 * static_cast<unsigned>(half),
                                          static_cast<unsigned>(value >> (32 * half)), 1,
                                          static_cast<cuda::StreamHandle>(stream)),
                "writing to memory of the GPU");
  }
}

Buffer::Buffer() = default;

Buffer::Buffer(Queue& queue, std::size_t bytes) : queue_(&queue), bytes_(bytes) {
  if (bytes == 0) return;
  if (queue.cuda() != nullptr) {
    cuda::Stream& stream = queue.cuda()->stream;
    data_ = cuda::device_pointer<void>(stream.device().allocate(bytes, stream.handle()));
    return;
  }
  data_ = host_memory(bytes);
}

Buffer::~Buffer() { release(); }

Buffer::Buffer(Buffer&& other) noexcept
    : queue_(other.queue_), data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(queue_, other.queue_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

void Buffer::release() noexcept {
  if (data_ == nullptr) return;
  if (queue_->cuda() != nullptr) {
    cuda::Stream& stream = queue_->cuda()->stream;
    stream.device().free(address(data_), stream.handle());
  } else {
    ::operator delete(data_, host_alignment);
  }
  data_ = nullptr;
}

void Buffer::zero(std::size_t bytes, std::size_t offset) {
  require_argument(offset <= bytes_ && bytes <= bytes_ - offset, "bytes", offset + bytes,
                   "at most the {} of the buffer", bytes_);
  if (bytes == 0) return;
  if (queue_->cuda() == nullptr) {
    std::memset(static_cast<std::byte*>(data_) + offset, 0, bytes);
    return;
  }
  cuda::Stream& stream = queue_->cuda()->stream;
  stream.device().make_current();
  cuda::check(cuda::driver().fill_bytes(address(data_) + offset, 0, bytes, stream.handle()),
              "filling memory of the GPU");
}

void Buffer::start_upload(const void* from, std::size_t bytes, std::size_t offset) {
  require_argument(offset <= bytes_ && bytes <= bytes_ - offset, "bytes", offset + bytes,
                   "at most the {} of the buffer", bytes_);
  if (bytes == 0) return;
  if (queue_->cuda() == nullptr) {
    std::memcpy(static_cast<std::byte*>(data_) + offset, from, bytes);
    return;
  }
  const cuda::Stream& stream = queue_->cuda()->stream;
  stream.device().make_current();
  cuda::check(cuda::driver().copy_to_device(address(data_) + offset, from, bytes, stream.handle()),
              "copying to the GPU");
}

void Buffer::start_download(void* to, std::size_t bytes, std::size_t offset) const {
  require_argument(offset <= bytes_ && bytes <= bytes_ - offset, "bytes", offset + bytes,
                   "at most the {} of the buffer", bytes_);
  if (bytes == 0) return;
  ops::start_download(*queue_, to, static_cast<const std::byte*>(data_) + offset, bytes);
}

void Buffer::upload(const void* from, std::size_t bytes, std::size_t offset) {
  start_upload(from, bytes, offset);
  if (queue_ != nullptr) queue_->synchronize();
}

void Buffer::download(void* to, std::size_t bytes, std::size_t offset) const {
  start_download(to, bytes, offset);
  if (queue_ != nullptr) queue_->synchronize();
}

struct StagingBuffer::Memory {
  cuda::PinnedMemory pinned;
  std::vector<std::byte> plain;
};

StagingBuffer::StagingBuffer(Queue& queue, std::size_t bytes) : memory_(std::make_unique<Memory>()) {
  if (queue.cuda() != nullptr) {
    memory_->pinned = cuda::PinnedMemory(queue.cuda()->stream.device(), bytes);
  } else {
    memory_->plain.resize(bytes);
  }
}
StagingBuffer::~StagingBuffer() = default;
StagingBuffer::StagingBuffer(StagingBuffer&&) noexcept = default;
StagingBuffer& StagingBuffer::operator=(StagingBuffer&&) noexcept = default;

std::byte* StagingBuffer::data() const {
  return memory_->pinned.data() != nullptr ? static_cast<std::byte*>(memory_->pinned.data()) : memory_->plain.data();
}
std::size_t StagingBuffer::bytes() const {
  return memory_->pinned.data() != nullptr ? memory_->pinned.bytes() : memory_->plain.size();
}

struct Marker::Event {
  explicit Event(cuda::Device& device) : event(device) {}
  cuda::Event event;
  bool set = false;
};

Marker::Marker(Queue& queue) : queue_(&queue) {
  if (queue.cuda() != nullptr) event_ = std::make_unique<Event>(queue.cuda()->stream.device());
}
Marker::~Marker() = default;
Marker::Marker(Marker&&) noexcept = default;
Marker& Marker::operator=(Marker&&) noexcept = default;

void Marker::set() {
  if (!event_) return;
  event_->event.record(queue_->cuda()->stream.handle());
  event_->set = true;
}

void Marker::wait() const {
  if (event_ && event_->set) event_->event.synchronize();
}

}  // namespace penstock::ops
