// One making of each key, and different keys side by side.

#include "base/once_map.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <latch>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace penstock {
namespace {

TEST(OnceMap, MakesDifferentKeysSideBySide) {
  OnceMap<int, int> map;
  // Each waits for the other while it makes its value: one after the other, they would wait for ever.
  std::latch both(2);
  const auto make = [&](int value) {
    return map.get(value, [&] {
      both.arrive_and_wait();
      return std::make_unique<int>(10 * value);
    });
  };
  auto first = std::async(std::launch::async, [&] { return make(1); });
  EXPECT_EQ(make(2), 20);
  EXPECT_EQ(first.get(), 10);
}

TEST(OnceMap, MakesEachKeyOnce) {
  OnceMap<std::string, int> map;
  std::atomic<int> made = 0;
  std::atomic<const int*> seen = nullptr;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      const int& value = map.get("key", [&] {
        std::this_thread::yield();
        return std::make_unique<int>(++made);
      });
      const int* expected = nullptr;
      EXPECT_TRUE(seen.compare_exchange_strong(expected, &value) || expected == &value);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(made, 1);
}

TEST(OnceMap, TriesAgainAfterAFailure) {
  OnceMap<int, int> map;
  EXPECT_THROW(map.get(1, []() -> std::unique_ptr<int> { throw std::runtime_error("no"); }), std::runtime_error);
  EXPECT_EQ(map.get(1, [] { return std::make_unique<int>(7); }), 7);
  EXPECT_EQ(map.get(1, [] { return std::make_unique<int>(8); }), 7);
}

}  // namespace
}  // namespace penstock
