#pragma once

#include <malloc.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

// Every allocation of C++ code in a program that includes this is counted: for programs of one source.

namespace penstock::test {

inline std::atomic<long> allocations{0};
/// Bytes that are allocated now, and the most there have been since somebody set this to what there is.
inline std::atomic<std::size_t> allocated_bytes{0}, most_allocated_bytes{0};
/// The largest that was asked for since somebody set this to 0.
inline std::atomic<std::size_t> largest_allocation{0};

inline void raise_to(std::atomic<std::size_t>& most, std::size_t value) {
  std::size_t before = most;
  while (before < value && !most.compare_exchange_weak(before, value)) {
  }
}

/// Null if there is not that much.
inline void* try_counted_allocation(std::size_t size, std::size_t alignment) noexcept {
  void* const memory = std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (!memory) return nullptr;
  ++allocations;
  raise_to(largest_allocation, size);
  raise_to(most_allocated_bytes, allocated_bytes += malloc_usable_size(memory));
  return memory;
}

inline void* counted_allocation(std::size_t size, std::size_t alignment) {
  void* const memory = try_counted_allocation(size, alignment);
  if (!memory) throw std::bad_alloc();
  return memory;
}

inline void counted_free(void* memory) {
  if (memory != nullptr) allocated_bytes -= malloc_usable_size(memory);
  std::free(memory);
}

}  // namespace penstock::test

// With the sanitizers' instrumentation between them, g++ inlines delete but not new, and takes the pair for mismatched.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
void* operator new(std::size_t size) { return penstock::test::counted_allocation(size, alignof(std::max_align_t)); }
void* operator new[](std::size_t size) { return penstock::test::counted_allocation(size, alignof(std::max_align_t)); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return penstock::test::counted_allocation(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return penstock::test::counted_allocation(size, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return penstock::test::try_counted_allocation(size, alignof(std::max_align_t));
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return penstock::test::try_counted_allocation(size, alignof(std::max_align_t));
}
void* operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return penstock::test::try_counted_allocation(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return penstock::test::try_counted_allocation(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { penstock::test::counted_free(memory); }
void operator delete[](void* memory) noexcept { penstock::test::counted_free(memory); }
void operator delete(void* memory, std::size_t) noexcept { penstock::test::counted_free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { penstock::test::counted_free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { penstock::test::counted_free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { penstock::test::counted_free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { penstock::test::counted_free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { penstock::test::counted_free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { penstock::test::counted_free(memory); }
void operator delete(void* memory, std::align_val_t, const std::nothrow_t&) noexcept {
  penstock::test::counted_free(memory);
}
void operator delete[](void* memory, std::align_val_t, const std::nothrow_t&) noexcept {
  penstock::test::counted_free(memory);
}
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { penstock::test::counted_free(memory); }
#pragma GCC diagnostic pop
