// A bounded queue from many threads to one.

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "base/step_queue.h"

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

TEST(StepQueue, IsFullAtItsBound) {
  StepQueue queue(3, sizeof(int));
  for (int lap = 0; lap < 5; ++lap) {
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(queue.push(1, 10 * lap + i, &i));
    const int more = 9;
    ASSERT_FALSE(queue.push(1, 99, &more));
    ASSERT_EQ(queue.look(), 3U);
    ASSERT_EQ(queue.at(2).tag, 10 * lap + 2U);
    queue.drop({0, 1, 1});  // the place of the first, which still waits, comes next
    ASSERT_EQ(queue.size(), 1);
    ASSERT_FALSE(queue.push(1, 99, &more));
    queue.drop({1});
    ASSERT_EQ(queue.size(), 0);
    ASSERT_EQ(queue.look(), 0U);
  }
}

TEST(StepQueue, SleepsUntilAStepOrTheEnd) {
  StepQueue queue(4, sizeof(int));
  const auto begin = Clock::now();
  EXPECT_EQ(queue.wait(1, begin + std::chrono::milliseconds(20)), 0U);
  EXPECT_GE(seconds_since(begin), 0.02);
  for (int round = 0; round < 50; ++round) {
    std::jthread producer([&] {
      for (int i = 0; i < 2; ++i) ASSERT_TRUE(queue.push(1, i, &i));
    });
    ASSERT_EQ(queue.wait(2, Clock::now() + std::chrono::seconds(60)), 2U);
    ASSERT_EQ(queue.wait(3, Clock::now() + std::chrono::microseconds(1)), 2U);
    queue.drop({1, 1});
  }
}

TEST(StepQueue, ManyThreadsPushWhileOneTakes) {
  StepQueue queue(7, sizeof(int));
  constexpr int producers = 4, steps = 2000;
  std::vector<std::jthread> threads;
  for (int producer = 0; producer < producers; ++producer) {
    threads.emplace_back([&queue, producer] {
      for (int i = 0; i < steps; ++i) {
        while (!queue.push(static_cast<std::uint64_t>(producer), static_cast<std::uint64_t>(i), &i)) {
          std::this_thread::yield();
        }
      }
    });
  }
  std::vector<int> next(producers);
  const auto begin = Clock::now();
  for (int taken = 0; taken < producers * steps && seconds_since(begin) < 60;) {
    const std::size_t there =
        queue.wait(static_cast<std::size_t>(taken % 3 + 1), Clock::now() + std::chrono::milliseconds(1));
    std::vector<char> drop(there), seen(producers);
    for (std::size_t place = 0; place < there; ++place) {
      const StepQueue::View view = queue.at(place);
      if (seen[view.session]++ != 0) continue;  // its second step waits
      int step = -1;
      std::memcpy(&step, view.step, sizeof(step));
      ASSERT_EQ(step, next[view.session]++);
      ASSERT_EQ(view.tag, static_cast<std::uint64_t>(step));
      drop[place] = 1;
      ++taken;
    }
    queue.drop(drop);
  }
  for (const int taken : next) EXPECT_EQ(taken, steps);
  EXPECT_EQ(queue.size(), 0);
}

}  // namespace
}  // namespace penstock
