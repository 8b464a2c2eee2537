#include "host_memory.h"

#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>

#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace penstock::frameworks {
namespace {

constexpr std::size_t kWordBytes = sizeof(std::uint64_t);

#ifdef __linux__
/// Advises the system about the whole pages of this memory. A system that does not know the advice ignores it.
void advise(void* memory, std::size_t bytes, int advice) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  const std::uintptr_t first = (begin + page - 1) / page * page, last = (begin + bytes) / page * page;
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  if (first < last) static_cast<void>(madvise(reinterpret_cast<void*>(first), last - first, advice));
}
#endif

}  // namespace

void ask_for_large_pages(void* memory, std::size_t bytes) {
#ifdef __linux__
  constexpr std::size_t kLargePage = std::size_t{2} << 20;
  if (bytes < 2 * kLargePage) return;  // from this size on, memory contains a whole large page at any address
  advise(memory, bytes, MADV_HUGEPAGE);
#else
  static_cast<void>(memory);
  static_cast<void>(bytes);
#endif
}

void return_pages(void* memory, std::size_t bytes) {
#ifdef __linux__
  advise(memory, bytes, MADV_DONTNEED);
#else
  static_cast<void>(memory);
  static_cast<void>(bytes);
#endif
}

void* scratch(std::size_t bytes) {
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete[](memory, std::align_val_t{TapeArray::alignment}); }
  };
  thread_local std::unique_ptr<std::byte[], Free> memory;
  thread_local std::size_t size = 0;
  if (bytes > size) {
    memory.reset();
    size = 0;
    memory.reset(static_cast<std::byte*>(::operator new[](bytes, std::align_val_t{TapeArray::alignment})));
    size = bytes;
    ask_for_large_pages(memory.get(), bytes);
  }
  return memory.get();
}

std::size_t TapeArray::bytes(std::size_t tape) { return tape + alignment + kWordBytes; }

std::size_t TapeArray::offset_at(const void* address) {
  return (alignment - reinterpret_cast<std::uintptr_t>(address) % alignment) % alignment;
}

Memory TapeArray::begin(void* array, std::size_t tape) {
  const std::uint64_t offset = offset_at(array);
  auto* const first = static_cast<std::byte*>(array);
  std::memcpy(first + bytes(tape) - kWordBytes, &offset, kWordBytes);
  return {first + offset, tape};
}

std::size_t TapeArray::stored(const void* array, std::size_t tape) {
  std::uint64_t offset = 0;
  std::memcpy(&offset, static_cast<const std::byte*>(array) + bytes(tape) - kWordBytes, kWordBytes);
  if (offset >= alignment) throw std::runtime_error("tape does not hold what a forward pass wrote");
  return offset;
}

}  // namespace penstock::frameworks
