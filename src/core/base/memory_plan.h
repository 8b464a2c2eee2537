#pragma once

#include <cstddef>
#include <vector>

namespace penstock {

/// Memory that is in use from one moment to another, both included.
struct Lifetime {
  std::size_t bytes = 0;
  int first = 0;
  int last = 0;
};

struct MemoryPlan {
  std::vector<std::size_t> offsets;  ///< Offset of each lifetime; multiples of `memory_alignment`.
  std::size_t bytes = 0;             ///< Bytes of all together.
};

/// Every value begins at such a multiple: what CUDA's allocator gives, and what vector accesses on any device want.
inline constexpr std::size_t memory_alignment = 256;

constexpr std::size_t aligned(std::size_t bytes) {
  return (bytes + memory_alignment - 1) / memory_alignment * memory_alignment;
}

/// Places for all lifetimes such that no two which overlap in time overlap in memory. Largest first, each at the lowest
/// place that is free ("greedy by size", Pisarchyk and Lee 2020), which is within a few percent of the peak for
/// networks.
MemoryPlan plan_memory(const std::vector<Lifetime>& lifetimes);

/// The most bytes that are in use at one moment: no plan can need less.
std::size_t peak_bytes(const std::vector<Lifetime>& lifetimes);

}  // namespace penstock
