#include "base/memory_plan.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace penstock {

namespace {

bool overlap(const Lifetime& a, const Lifetime& b) { return a.first <= b.last && b.first <= a.last; }

}  // namespace

MemoryPlan plan_memory(const std::vector<Lifetime>& lifetimes) {
  MemoryPlan plan;
  plan.offsets.assign(lifetimes.size(), 0);
  std::vector<std::size_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
    return std::pair(lifetimes[b].bytes, a) < std::pair(lifetimes[a].bytes, b);
  });

  std::vector<std::size_t> placed;  // in rising order of their offsets
  for (const std::size_t i : order) {
    const std::size_t bytes = aligned(lifetimes[i].bytes);
    std::size_t offset = 0;
    for (const std::size_t other : placed) {
      if (!overlap(lifetimes[i], lifetimes[other])) continue;
      if (offset + bytes <= plan.offsets[other]) break;
      offset = std::max(offset, plan.offsets[other] + aligned(lifetimes[other].bytes));
    }
    plan.offsets[i] = offset;
    plan.bytes = std::max(plan.bytes, offset + bytes);
    const auto behind = std::ranges::upper_bound(placed, offset, {}, [&](std::size_t j) { return plan.offsets[j]; });
    placed.insert(behind, i);
  }
  return plan;
}

std::size_t peak_bytes(const std::vector<Lifetime>& lifetimes) {
  std::size_t peak = 0;
  for (const Lifetime& moment : lifetimes) {
    std::size_t bytes = 0;
    for (const Lifetime& other : lifetimes) {
      if (other.first <= moment.first && moment.first <= other.last) bytes += aligned(other.bytes);
    }
    peak = std::max(peak, bytes);
  }
  return peak;
}

}  // namespace penstock
