#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string_view>

#include "penstock/types.h"

/// Memory of any device, seen and owned, and what goes with every call.
namespace penstock {

namespace ops {
class Queue;
}

/// How a number lies in memory.
enum class DType { f32, f64, bf16, f16, i32, i64, u8 };

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
      return 1;
  }
  return 0;
}

std::string_view to_string(DType type);

/// A view of numbers on a device, of up to four axes. It owns nothing; strides are in elements.
struct Tensor {
  static constexpr int max_rank = 4;

  void* data = nullptr;
  DType dtype = DType::f32;
  Device device = {};
  int rank = 0;
  std::array<Index, max_rank> shape = {};
  std::array<Index, max_rank> strides = {};

  explicit operator bool() const { return data != nullptr; }
  /// Without gaps, the last axis side by side. What is only read may be const: nobody writes there.
  static Tensor contiguous(const void* data, DType dtype, std::initializer_list<Index> shape, Device device = {});
  /// A sequence [B, T, C] that lies in memory as [T, B, C] without gaps.
  static Tensor time_first(const void* data, DType dtype, Index rows, Index steps, Index channels, Device device = {});
};

/// Strides of B and T of a sequence [B, T, C], in elements; both 0: no gaps, rows after rows.
struct SequenceStrides {
  Index row = 0;
  Index step = 0;
  bool operator==(const SequenceStrides&) const = default;
};

/// Raw memory of a device, such as a workspace or a tape. Aligned to 256 bytes.
struct Memory {
  void* data = nullptr;
  std::size_t bytes = 0;
};

/// How and where one call runs. The program of a call is planned for the execution; stream and seed are the call's own.
struct Context {
  Execution execution = {};  ///< Device, threads, precision, exact or not.
  void* stream = nullptr;    ///< GPUs: `cudaStream_t` or `CUstream`, the caller's; null is the default stream.
  std::uint64_t seed = 0;    ///< Decides every dropout mask; a backward pass has that of its forward pass.
  /// GPUs, instead of `seed`: where the device finds it when the call runs, for calls that are recorded once and
  /// launched many times.
  const unsigned long long* device_seed = nullptr;
};

/// Where work of a device is put, one thing after the other: a CUDA stream of its own, or the calling thread.
class Stream {
 public:
  /// Throws Error: unsupported where there is no such device, saying what is missing; invalid_argument for a number
  /// that no GPU has.
  explicit Stream(Device device = {});
  ~Stream();
  Stream(Stream&&) noexcept;
  Stream& operator=(Stream&&) noexcept;

  Device device() const;
  /// `CUstream`; null on the CPU.
  void* handle() const;
  /// The host waits until all work of the stream is done.
  void synchronize() const;

 private:
  friend const std::shared_ptr<ops::Queue>& queue_of(const Stream& stream);
  struct Content;
  std::unique_ptr<Content> content_;
};

/// Memory of a device, aligned to 256 bytes; of a GPU, allocated and freed in the order of its stream, which lasts as
/// long as anything that was made on it.
class Buffer {
 public:
  Buffer();
  /// Uninitialised. Throws Error(out_of_memory) that says how much was asked for.
  Buffer(Stream& stream, std::size_t bytes);
  ~Buffer();
  Buffer(Buffer&&) noexcept;
  Buffer& operator=(Buffer&&) noexcept;

  void* data() const;
  std::size_t bytes() const;
  Memory memory() const { return {data(), bytes()}; }
  /// Sets every byte to zero, in the order of the stream.
  void clear();
  /// Copies the first bytes from or to any memory of the host and waits for that.
  void upload(const void* from, std::size_t bytes);
  void download(void* to, std::size_t bytes) const;

 private:
  struct Content;
  std::unique_ptr<Content> content_;
};

}  // namespace penstock
