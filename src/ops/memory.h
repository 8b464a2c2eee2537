#pragma once

#include <cstddef>
#include <memory>

#include "penstock/device.h"

namespace penstock::ops {

/// Where work of a device is put, one thing after the other: a CUDA stream, or the calling thread.
class Queue {
 public:
  /// Throws Error: unsupported where there is no such device, saying what is missing; invalid_argument for a number
  /// that no GPU has.
  explicit Queue(Device device);
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  Device device() const { return device_; }
  /// `CUstream`; null on the CPU.
  void* stream() const;
  /// Waits until all work is done.
  void synchronize() const;

  struct Cuda;
  Cuda* cuda() const { return cuda_.get(); }

 private:
  Device device_;
  std::unique_ptr<Cuda> cuda_;
};

/// Memory of a device, aligned to 256 bytes; of a GPU, allocated and freed in the order of its queue, which must
/// outlive it.
class Buffer {
 public:
  Buffer();
  /// Uninitialised. Throws Error(out_of_memory) that says how much was asked for.
  Buffer(Queue& queue, std::size_t bytes);
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;

  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  void zero();
  /// Copies from or to the host's memory and waits for that; `offset` in bytes from the start of the buffer.
  void upload(const void* from, std::size_t bytes, std::size_t offset = 0);
  void download(void* to, std::size_t bytes, std::size_t offset = 0) const;

 private:
  void release() noexcept;

  Queue* queue_ = nullptr;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace penstock::ops
