#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace penstock {

/// Memory that begins at a cache line.
template <class T>
struct CacheLineAllocator {
  using value_type = T;
  static constexpr std::align_val_t line{64};

  CacheLineAllocator() = default;
  template <class U>
  CacheLineAllocator(const CacheLineAllocator<U>&) {}  // NOLINT(google-explicit-constructor): allocators convert

  T* allocate(std::size_t count) { return static_cast<T*>(::operator new(count * sizeof(T), line)); }
  void deallocate(T* memory, std::size_t) { ::operator delete(memory, line); }
  friend bool operator==(const CacheLineAllocator&, const CacheLineAllocator&) { return true; }
};

/// Memory to be read in vectors: none of them lies across two cache lines, which would cost as much as reading both.
template <class T>
using AlignedVector = std::vector<T, CacheLineAllocator<T>>;

}  // namespace penstock
