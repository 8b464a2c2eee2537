#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string_view>

#include "penstock/types.h"

/// Tensors, buffers and streams: views and ownership of device memory, and the context of a call.
namespace penstock {

namespace ops {
class Queue;
}

/// Type of the numbers in memory.
enum class DType { f32, f64, bf16, f16, i32, i64, u8, i8 };

/// Returns the bytes of one number.
constexpr std::size_t size_of(DType type) {
  switch (type) {
    case DType::f64:
    case DType::i64:
      return 8;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
    case DType::f16:
      return 2;
    case DType::u8:
    case DType::i8:
      return 1;
  }
  return 0;
}

/// Returns the name of a type: "f32", "bf16", ...
std::string_view to_string(DType type);

/// A view of numbers on a device, with up to four axes. It owns nothing.
struct Tensor {
  static constexpr int max_rank = 4;

  void* data = nullptr;  ///< Null: no tensor.
  DType dtype = DType::f32;
  Device device = {};
  int rank = 0;                              ///< Number of axes.
  std::array<Index, max_rank> shape = {};    ///< Size of each axis.
  std::array<Index, max_rank> strides = {};  ///< Stride of each axis, in elements.

  explicit operator bool() const { return data != nullptr; }
  /// Returns a view of contiguous data in row-major order. `data` may point to const memory if calls only read it.
  static Tensor contiguous(const void* data, DType dtype, std::initializer_list<Index> shape, Device device = {});
  /// Returns a view [B, T, C] of contiguous data [T, B, C].
  static Tensor time_first(const void* data, DType dtype, Index rows, Index steps, Index channels, Device device = {});
};

/// Strides of B and T of a sequence [B, T, C], in elements. Both 0: contiguous, batch first.
struct SequenceStrides {
  Index row = 0;
  Index step = 0;
  bool operator==(const SequenceStrides&) const = default;
};

/// A view of raw device memory, such as a workspace or a tape. Must be aligned to 128 bytes.
struct Memory {
  void* data = nullptr;
  std::size_t bytes = 0;
};

/// Place and settings of one call of a program. `execution` is the one the program was planned for; stream and seed
/// belong to the call.
struct Context {
  Execution execution = {};  ///< Device, threads, precision, exact mode.
  void* stream = nullptr;    ///< GPUs: the caller's `cudaStream_t` or `CUstream`; null: the default stream.
  std::uint64_t seed = 0;    ///< Seed of the dropout masks. A backward pass needs the seed of its forward pass.
  /// GPUs: address in device memory that the call reads the seed from when it runs, instead of `seed`. For calls that
  /// are recorded once and launched many times.
  const unsigned long long* device_seed = nullptr;
};

/// A queue of work on a device, executed in order: a new CUDA stream, or, on the CPU, the calling thread.
class Stream {
 public:
  /// Throws Error: unsupported, with what is missing, if the device is not available; invalid_argument for a GPU index
  /// that does not exist.
  explicit Stream(Device device = {});
  ~Stream();
  Stream(Stream&&) noexcept;
  Stream& operator=(Stream&&) noexcept;

  Device device() const;
  /// Returns the `CUstream`; null on the CPU.
  void* handle() const;
  /// Waits until all work of the stream is done.
  void synchronize() const;
  /// Makes work that is queued from now on wait for the work that `stream` has so far. `stream` is a `cudaStream_t` or
  /// `CUstream` of the same GPU. Does nothing on the CPU, where all work is done when a call returns.
  void wait_for(void* stream) const;
  /// Copies `bytes` bytes within the device's memory, in the order of the stream.
  void copy(void* to, const void* from, std::size_t bytes) const;
  /// Copies `bytes` bytes from the device's memory to host memory, and waits.
  void download(void* to, const void* from, std::size_t bytes) const;

 private:
  friend const std::shared_ptr<ops::Queue>& queue_of(const Stream& stream);
  struct Content;
  std::unique_ptr<Content> content_;
};

/// Owns device memory, aligned to 256 bytes. On a GPU it is allocated and freed in the order of its stream; the stream
/// lives as long as anything made on it.
class Buffer {
 public:
  /// Makes an empty buffer.
  Buffer();
  /// Allocates uninitialised memory. Throws Error(out_of_memory) with the size that was requested.
  Buffer(Stream& stream, std::size_t bytes);
  ~Buffer();
  Buffer(Buffer&&) noexcept;
  Buffer& operator=(Buffer&&) noexcept;

  void* data() const;
  std::size_t bytes() const;
  Memory memory() const { return {data(), bytes()}; }
  /// Sets every byte to zero, in the order of the stream.
  void clear();
  /// Copies `bytes` bytes from host memory to the start of the buffer and waits. Throws Error(invalid_argument) if the
  /// buffer is smaller.
  void upload(const void* from, std::size_t bytes);
  /// Copies the first `bytes` bytes of the buffer to host memory and waits.
  void download(void* to, std::size_t bytes) const;

 private:
  struct Content;
  std::unique_ptr<Content> content_;
};

}  // namespace penstock
