#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "backend/cuda/driver/api.h"
#include "backend/cuda/driver/memory_pool.h"
#include "plan/gpu/scan.h"

namespace penstock::cuda {

/// An address of the device, as kernels and libraries take it; the host cannot read there.
template <class T>
T* device_pointer(DeviceAddress address) {
  return reinterpret_cast<T*>(address);  // NOLINT(performance-no-int-to-ptr)
}

/// Throws Error(invalid_argument) for an argument of that name that is null.
void require_address(DeviceAddress address, const char* name);

/// Greatest power of two, up to `most` (one itself), that divides all of some addresses and distances in bytes.
constexpr int common_alignment(int most, std::initializer_list<std::int64_t> numbers) {
  std::int64_t all = most;
  for (const std::int64_t number : numbers) all |= number;
  return static_cast<int>(all & -all);
}

/// Bytes up to a place where anything may begin, as the driver aligns memory.
constexpr std::size_t padded(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

/// How many GPUs there are; 0 without a driver. Never throws.
int device_count();

/// One GPU and its primary context, which PyTorch and other users of the runtime API share.
class Device {
 public:
  /// Throws Error: unsupported without a driver or for a chip older than sm_80, invalid_argument for a number that no
  /// GPU has.
  static Device& get(int ordinal);

  int ordinal() const { return ordinal_; }
  const plan::GpuModel& model() const { return model_; }
  /// Makes the context current in this thread. Every function below does so itself.
  void make_current() const;

  /// Stream-ordered memory of the device's pool. Throws Error(out_of_memory) that says how much was asked for.
  DeviceAddress allocate(std::size_t bytes, StreamHandle stream);
  void free(DeviceAddress address, StreamHandle stream) noexcept;
  /// Copies from pageable memory of the host, which may be reused at once: the host waits.
  void upload(DeviceAddress to, const void* from, std::size_t bytes, StreamHandle stream) const;
  /// Free memory in bytes, without what the pool keeps.
  std::size_t free_bytes() const;

 private:
  explicit Device(int ordinal);

  int ordinal_;
  int handle_ = 0;
  plan::GpuModel model_;
  ContextHandle context_ = nullptr;
  MemoryPool pool_;
};

/// Returns what the driver tells about a GPU, without making a context on it.
plan::GpuModel describe_device(int ordinal);
/// Why Penstock does not run on that GPU; empty where it does.
std::string complaint_about(int ordinal, const plan::GpuModel& model);

/// A stream that does not wait for the default stream.
class Stream {
 public:
  explicit Stream(Device& device);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  StreamHandle handle() const { return handle_; }
  Device& device() const { return device_; }
  void synchronize() const;
  /// Times that this process has waited for a stream so far.
  static unsigned long long synchronizations();

 private:
  Device& device_;
  StreamHandle handle_ = nullptr;
};

/// Memory of a GPU, freed in the order of its stream.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Stream& stream, std::size_t bytes);
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;

  DeviceAddress address() const { return address_; }
  std::size_t bytes() const { return bytes_; }
  void fill(unsigned char value);
  /// Copies between pageable host memory and the start of the buffer; the host memory may be reused at once.
  void upload(const void* from, std::size_t bytes);
  void download(void* to, std::size_t bytes) const;

 private:
  Stream* stream_ = nullptr;
  DeviceAddress address_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace penstock::cuda
