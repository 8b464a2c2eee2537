// The cache of what was used last, for one thread and for several.

#include "base/last_used_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <vector>

#include "base/shared_cache.h"

namespace penstock {
namespace {

TEST(LastUsedCache, KeepsThoseThatWereUsedLast) {
  LastUsedCache<int, int> cache(2);
  std::vector<int> made;
  const auto get = [&](int key) { return cache.get(key, [&] { return made.push_back(key), 10 * key; }); };
  EXPECT_EQ(get(1), 10);
  EXPECT_EQ(get(2), 20);
  EXPECT_EQ(get(1), 10);
  EXPECT_EQ(get(3), 30) << "in the place of 2, which was used longest ago";
  EXPECT_EQ(get(1), 10);
  EXPECT_EQ(get(2), 20);
  EXPECT_THAT(made, testing::ElementsAre(1, 2, 3, 2));
  std::vector<int> values;
  cache.for_each([&](int value) { values.push_back(value); });
  EXPECT_THAT(values, testing::ElementsAre(20, 10));
}

TEST(LastUsedCache, ValuesNeedNotMoveAndMakeRoomBeforehand) {
  struct Count {
    int now = 0, most = 0;
  };
  struct Counted {
    explicit Counted(Count& c) : count(c) { count.most = std::max(count.most, ++count.now); }
    ~Counted() { --count.now; }
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;
    Count& count;
  };
  Count count;
  {
    LastUsedCache<int, Counted> cache(1);
    for (const int key : {1, 2, 2, 3}) cache.get(key, [&] { return Counted(count); });
    EXPECT_EQ(count.now, 1);
  }
  EXPECT_EQ(count.now, 0);
  EXPECT_EQ(count.most, 1);
}

TEST(SharedCache, WhatFailsIsTriedAgain) {
  SharedCache<int, const int> recent(4);
  EXPECT_THROW(recent.get(1, []() -> std::shared_ptr<const int> { throw std::runtime_error("no"); }),
               std::runtime_error);
  const auto made = recent.get(1, [] { return std::make_shared<const int>(7); });
  EXPECT_EQ(*made, 7);
  EXPECT_EQ(recent.get(1, [] { return std::make_shared<const int>(8); }), made);
}

}  // namespace
}  // namespace penstock
