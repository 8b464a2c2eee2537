#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>
#include <utility>

namespace penstock::runtime {

/// Memory of the caller's size, aligned to 64 bytes and zeroed: what is as large as a file says is allocated by this,
/// so that too little memory is a failure and not the end of the program.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept
      : whole_(std::exchange(other.whole_, nullptr)), data_(std::exchange(other.data_, nullptr)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(whole_, other.whole_);
    std::swap(data_, other.data_);
    return *this;
  }
  ~Buffer() { std::free(whole_); }

  bool allocate(std::size_t bytes) {
    std::free(std::exchange(whole_, nullptr));
    data_ = nullptr;
    if (bytes > static_cast<std::size_t>(-1) / 2) return false;
    whole_ = std::calloc(bytes + kAlignment, 1);
    if (whole_ != nullptr) data_ = aligned(whole_);
    return whole_ != nullptr;
  }
  std::byte* data() const { return data_; }
  float* floats() const { return reinterpret_cast<float*>(data_); }

  static constexpr std::size_t kAlignment = 64;
  /// The first aligned byte at or behind an address.
  static std::byte* aligned(void* address) {
    const auto place = reinterpret_cast<std::size_t>(address);
    return static_cast<std::byte*>(address) + ((kAlignment - place % kAlignment) % kAlignment);
  }

 private:
  void* whole_ = nullptr;
  std::byte* data_ = nullptr;
};

}  // namespace penstock::runtime
