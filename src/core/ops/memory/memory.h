#pragma once

#include <cstddef>
#include <memory>

#include "penstock/device.h"

namespace penstock::ops {

/// Queue of work on a device, which runs in order: a CUDA stream, or the calling thread.
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
  /// Work from now on waits for what another stream of the GPU has so far.
  void wait_for(void* stream) const;

  struct Cuda;
  Cuda* cuda() const { return cuda_.get(); }

 private:
  Device device_;
  std::unique_ptr<Cuda> cuda_;
};

/// Sets memory of a device to zero, in the order of a stream of a GPU.
void clear_memory(Device device, void* memory, std::size_t bytes, void* stream);
/// Copies between places of one device, in the order of a stream of a GPU.
void copy_memory(Device device, void* to, const void* from, std::size_t bytes, void* stream);
/// Starts a copy to the host's memory, in the order of the queue.
void start_download(const Queue& queue, void* to, const void* from, std::size_t bytes);
/// Writes one number there.
void write_word(Device device, unsigned long long* to, unsigned long long value, void* stream);

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
  void zero() { zero(bytes_); }
  /// Some bytes, from `offset` on.
  void zero(std::size_t bytes, std::size_t offset = 0);
  /// Copies from or to the host's memory and waits for that; `offset` in bytes from the start of the buffer.
  void upload(const void* from, std::size_t bytes, std::size_t offset = 0);
  void download(void* to, std::size_t bytes, std::size_t offset = 0) const;
  /// Copies in the order of the queue, without waiting. The host's memory must be a StagingBuffer's, left alone until a
  /// Marker behind the copy has been passed.
  void start_upload(const void* from, std::size_t bytes, std::size_t offset = 0);
  void start_download(void* to, std::size_t bytes, std::size_t offset = 0) const;

 private:
  void release() noexcept;

  Queue* queue_ = nullptr;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Memory of the host that a queue's device copies from and to by itself: page-locked for a GPU.
class StagingBuffer {
 public:
  StagingBuffer(Queue& queue, std::size_t bytes);
  ~StagingBuffer();
  StagingBuffer(StagingBuffer&&) noexcept;
  StagingBuffer& operator=(StagingBuffer&&) noexcept;

  std::byte* data() const;
  std::size_t bytes() const;

  struct Memory;

 private:
  std::unique_ptr<Memory> memory_;
};

/// A point in the work of a queue.
class Marker {
 public:
  explicit Marker(Queue& queue);
  ~Marker();
  Marker(Marker&&) noexcept;
  Marker& operator=(Marker&&) noexcept;

  /// All work so far lies before the point.
  void set();
  /// The host waits until the point is passed; at once if it was never set.
  void wait() const;

  struct Event;

 private:
  Queue* queue_;
  std::unique_ptr<Event> event_;
};

}  // namespace penstock::ops
