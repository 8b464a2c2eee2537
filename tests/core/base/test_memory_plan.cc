// Plans of memory: nothing overlaps in time and in memory, and little is wasted.

#include "base/memory_plan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.h"
#include "penstock/types.h"

namespace penstock {
namespace {

/// Expects a plan that may be used, and is no smaller than possible.
void expect_sound(const std::vector<Lifetime>& lifetimes, const MemoryPlan& plan) {
  ASSERT_EQ(plan.offsets.size(), lifetimes.size());
  std::size_t end = 0, all = 0;
  for (std::size_t i = 0; i < lifetimes.size(); ++i) {
    EXPECT_EQ(plan.offsets[i] % memory_alignment, 0u) << i;
    end = std::max(end, plan.offsets[i] + lifetimes[i].bytes);
    all += aligned(lifetimes[i].bytes);
    for (std::size_t j = 0; j < i; ++j) {
      if (lifetimes[i].first > lifetimes[j].last || lifetimes[j].first > lifetimes[i].last) continue;
      const bool apart = plan.offsets[i] + lifetimes[i].bytes <= plan.offsets[j] ||
                         plan.offsets[j] + lifetimes[j].bytes <= plan.offsets[i];
      EXPECT_TRUE(apart || lifetimes[i].bytes == 0 || lifetimes[j].bytes == 0) << i << " lies over " << j;
    }
  }
  EXPECT_LE(end, plan.bytes);
  EXPECT_GE(plan.bytes, peak_bytes(lifetimes));
  EXPECT_LE(plan.bytes, all);
}

TEST(MemoryPlan, OfNothingIsNothing) {
  const MemoryPlan plan = plan_memory({});
  EXPECT_TRUE(plan.offsets.empty());
  EXPECT_EQ(plan.bytes, 0u);
  EXPECT_EQ(peak_bytes({}), 0u);
  EXPECT_EQ(plan_memory({{0, 0, 5}, {0, 2, 3}}).bytes, 0u);
}

TEST(MemoryPlan, BothMomentsOfALifetimeCount) {
  // The first is last read when the second is first written: they must lie apart. The third may take the first's place.
  const std::vector<Lifetime> lifetimes = {{1000, 0, 1}, {1000, 1, 2}, {1000, 2, 3}};
  const MemoryPlan plan = plan_memory(lifetimes);
  expect_sound(lifetimes, plan);
  EXPECT_NE(plan.offsets[0], plan.offsets[1]);
  EXPECT_NE(plan.offsets[1], plan.offsets[2]);
  EXPECT_EQ(plan.offsets[0], plan.offsets[2]);
  EXPECT_EQ(plan.bytes, 2u * 1024);
  EXPECT_EQ(peak_bytes(lifetimes), 2u * 1024);
}

TEST(MemoryPlan, SizesAreRoundedUpToTheAlignment) {
  for (const std::size_t bytes : {std::size_t{1}, memory_alignment - 1, memory_alignment}) {
    EXPECT_EQ(plan_memory({{bytes, 0, 0}}).bytes, memory_alignment) << bytes;
  }
  EXPECT_EQ(plan_memory({{memory_alignment + 1, 0, 0}}).bytes, 2 * memory_alignment);
}

TEST(MemoryPlan, ASmallOneFillsTheGapBelowALargeOne) {
  // At moment 1 the two large ones leave a gap where the middle one was.
  const std::vector<Lifetime> lifetimes = {{4096, 0, 2}, {2048, 0, 0}, {1024, 1, 2}, {1024, 1, 1}};
  const MemoryPlan plan = plan_memory(lifetimes);
  expect_sound(lifetimes, plan);
  EXPECT_EQ(plan.bytes, 4096u + 2048u);
}

TEST(MemoryPlan, AnyLifetimesArePlacedApart) {
  Random random(11);
  for (int trial = 0; trial < 300; ++trial) {
    const Index count = 1 + random.below(60), moments = 1 + random.below(40);
    std::vector<Lifetime> lifetimes;
    for (Index i = 0; i < count; ++i) {
      const auto first = static_cast<int>(random.below(moments));
      // Most are short, as activations are, some last long, as what a backward pass reads does.
      const Index longest = random.below(4) == 0 ? moments : 3;
      const auto last = static_cast<int>(std::min(moments - 1, first + random.below(longest)));
      // A few of nothing, and of all magnitudes.
      const auto bytes = static_cast<std::size_t>(random.below(Index{1} << random.below(20)));
      lifetimes.push_back({bytes, first, last});
    }
    SCOPED_TRACE("trial " + std::to_string(trial));
    expect_sound(lifetimes, plan_memory(lifetimes));
    if (HasFailure()) return;
  }
}

TEST(MemoryPlan, TheSamePlanEveryTime) {
  std::vector<Lifetime> lifetimes;
  Random random(5);
  for (int i = 0; i < 40; ++i) lifetimes.push_back({static_cast<std::size_t>(random.below(3)) * 700, i / 2, i / 2 + 3});
  EXPECT_EQ(plan_memory(lifetimes).offsets, plan_memory(lifetimes).offsets);
}

/// Lifetimes as in the passes of a network: activations that the backward pass reads in the opposite order, and
/// gradients and scratch that live for a moment.
TEST(MemoryPlan, IsNearThePeakForWhatANetworkNeeds) {
  Random random(3);
  for (int trial = 0; trial < 50; ++trial) {
    const int layers = 1 + static_cast<int>(random.below(30));
    std::vector<Lifetime> lifetimes;
    for (int layer = 0; layer < layers; ++layer) {
      const auto bytes = static_cast<std::size_t>(1000 + random.below(100000));
      const int forward = layer, backward = 2 * layers - 1 - layer;
      lifetimes.push_back({bytes, forward, backward});
      lifetimes.push_back({bytes, backward, backward + 1});
      lifetimes.push_back({static_cast<std::size_t>(random.below(50000)), forward, forward});
      lifetimes.push_back({static_cast<std::size_t>(random.below(50000)), backward, backward});
    }
    const MemoryPlan plan = plan_memory(lifetimes);
    expect_sound(lifetimes, plan);
    EXPECT_LE(static_cast<double>(plan.bytes), 1.3 * static_cast<double>(peak_bytes(lifetimes))) << layers << " layers";
  }
}

}  // namespace
}  // namespace penstock
