#pragma once

#include <cstddef>

#include "penstock/tensor.h"

/// Memory of calls on a CPU, for bindings whose frameworks hold the arrays.
namespace penstock::frameworks {

/// Asks the system to use large pages for this memory: fewer page faults and TLB misses.
void ask_for_large_pages(void* memory, std::size_t bytes);

/// Returns the whole pages of this memory to the system and leaves their contents undefined. The C library keeps freed
/// memory for itself if it lies within its heap.
void return_pages(void* memory, std::size_t bytes);

/// Returns memory of the calling thread for one call, which grows with the largest. Aligned as a tape is.
void* scratch(std::size_t bytes);

/// A tape in an array of bytes. The tape starts at a multiple of 256 bytes, but arrays may start anywhere. The last
/// bytes of the array store the offset, because an array that was moved in the meantime may have another alignment.
struct TapeArray {
  static constexpr std::size_t alignment = 256;

  /// Rounds up to the alignment.
  static constexpr std::size_t padded(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }
  /// Returns the size of an array for a tape of this many bytes, including alignment and the stored offset.
  static std::size_t bytes(std::size_t tape);
  /// Returns the bytes from this address to the first aligned one.
  static std::size_t offset_at(const void* address);
  /// Returns the memory of a tape for a forward pass on a CPU, and stores its offset.
  static Memory begin(void* array, std::size_t tape);
  /// Returns the offset that begin() stored. Throws std::runtime_error for an impossible one.
  static std::size_t stored(const void* array, std::size_t tape);
};

}  // namespace penstock::frameworks
