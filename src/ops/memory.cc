#include "ops/memory.h"

#include <cstring>
#include <new>
#include <utility>

#include "backend/cuda/device.h"
#include "backend/cuda/driver.h"
#include "base/check.h"

namespace penstock::ops {

namespace {

constexpr std::align_val_t host_alignment{256};

cuda::DeviceAddress address(void* data) { return reinterpret_cast<cuda::DeviceAddress>(data); }

}  // namespace

/// The stream, behind a type that headers need not know.
struct Queue::Cuda {
  explicit Cuda(int index) : stream(cuda::Device::get(index)) {}
  cuda::Stream stream;
};

Queue::Queue(Device device) : device_(device) {
  if (device.is_cuda()) {
    cuda_ = std::make_unique<Cuda>(device.index);
  } else {
    require(device.index == 0, "device must be cpu, of which there is one, not number {}", device.index);
  }
}

Queue::~Queue() = default;

void* Queue::stream() const { return cuda_ ? cuda_->stream.handle() : nullptr; }

void Queue::synchronize() const {
  if (cuda_) cuda_->stream.synchronize();
}

Buffer::Buffer() = default;

Buffer::Buffer(Queue& queue, std::size_t bytes) : queue_(&queue), bytes_(bytes) {
  if (bytes == 0) return;
  if (queue.cuda() != nullptr) {
    cuda::Stream& stream = queue.cuda()->stream;
    data_ = cuda::device_pointer<void>(stream.device().allocate(bytes, stream.handle()));
    return;
  }
  data_ = ::operator new(bytes, host_alignment, std::nothrow);
  if (data_ == nullptr) fail(ErrorCode::out_of_memory, "{} MB of memory cannot be had", bytes >> 20);
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

void Buffer::zero() {
  if (bytes_ == 0) return;
  if (queue_->cuda() == nullptr) {
    std::memset(data_, 0, bytes_);
    return;
  }
  cuda::Stream& stream = queue_->cuda()->stream;
  stream.device().make_current();
  cuda::check(cuda::driver().fill_bytes(address(data_), 0, bytes_, stream.handle()), "filling memory of the GPU");
}

void Buffer::upload(const void* from, std::size_t bytes, std::size_t offset) {
  require(offset <= bytes_ && bytes <= bytes_ - offset, "bytes must be at most the {} of the buffer, not {}", bytes_,
          offset + bytes);
  if (bytes == 0) return;
  if (queue_->cuda() == nullptr) {
    std::memcpy(static_cast<std::byte*>(data_) + offset, from, bytes);
    return;
  }
  cuda::Stream& stream = queue_->cuda()->stream;
  stream.device().upload(address(data_) + offset, from, bytes, stream.handle());
}

void Buffer::download(void* to, std::size_t bytes, std::size_t offset) const {
  require(offset <= bytes_ && bytes <= bytes_ - offset, "bytes must be at most the {} of the buffer, not {}", bytes_,
          offset + bytes);
  if (bytes == 0) return;
  if (queue_->cuda() == nullptr) {
    std::memcpy(to, static_cast<const std::byte*>(data_) + offset, bytes);
    return;
  }
  cuda::Stream& stream = queue_->cuda()->stream;
  stream.device().make_current();
  cuda::check(cuda::driver().copy_to_host(to, address(data_) + offset, bytes, stream.handle()), "copying from the GPU");
  stream.synchronize();
}

}  // namespace penstock::ops
