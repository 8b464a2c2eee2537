#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <vector>

#include "penstock/types.h"

namespace penstock::nn {

/// Memory for the activations of one call: taken piece by piece, given back all at once (or down to a mark). The same
/// sequence of requests finds the same memory again, so a step that repeats the shapes of an earlier one allocates
/// nothing.
class Arena {
 public:
  /// `count` values, uninitialised, aligned to a cache line. Valid until reset() or the end of an enclosing Scope.
  template <class T>
  T* take(Index count) {
    static_assert(std::is_trivially_destructible_v<T>);
    return static_cast<T*>(take_bytes(static_cast<std::size_t>(count) * sizeof(T)));
  }

  /// Everything taken so far is free again.
  void reset() { chunk_ = used_ = 0; }

  /// Bytes that the arena holds.
  std::size_t capacity() const {
    std::size_t sum = 0;
    for (const Chunk& chunk : chunks_) sum += chunk.size;
    return sum;
  }

  /// What is taken between its construction and its end is temporary.
  class Scope {
   public:
    explicit Scope(Arena& arena) : arena_(arena), chunk_(arena.chunk_), used_(arena.used_) {}
    ~Scope() { arena_.chunk_ = chunk_, arena_.used_ = used_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Arena& arena_;
    std::size_t chunk_, used_;
  };

 private:
  static constexpr std::size_t alignment = 64;
  // Small requests share a chunk; large ones get their own, of exactly their size.
  static constexpr std::size_t smallest_chunk = std::size_t{1} << 18;

  struct Free {
    void operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{alignment}); }
  };
  struct Chunk {
    std::unique_ptr<std::byte, Free> memory;
    std::size_t size;
  };

  void* take_bytes(std::size_t bytes) {
    bytes = (bytes + alignment - 1) / alignment * alignment;
    while (chunk_ < chunks_.size() && chunks_[chunk_].size - used_ < bytes) ++chunk_, used_ = 0;
    if (chunk_ == chunks_.size()) {
      const std::size_t size = bytes < smallest_chunk ? smallest_chunk : bytes;
      chunks_.reserve(chunks_.size() + 1);
      chunks_.push_back({std::unique_ptr<std::byte, Free>(
                             static_cast<std::byte*>(::operator new (size, std::align_val_t{alignment}))),
                         size});
      used_ = 0;
    }
    std::byte* const result = chunks_[chunk_].memory.get() + used_;
    used_ += bytes;
    return result;
  }

  std::vector<Chunk> chunks_;
  std::size_t chunk_ = 0;  // where the next request is tried
  std::size_t used_ = 0;   // of that chunk
};

}  // namespace penstock::nn
