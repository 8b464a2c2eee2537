// Who is asked whether to stop, on which threads, and how often.

#include "penstock/stop.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/parallel_tasks.h"
#include "support/expect_error.h"

namespace penstock {
namespace {

using test::expect_error;

TEST(Stop, NobodyCanAskUnlessItIsSaid) {
  stop_if_asked();
  const Stoppable never(nullptr);
  stop_if_asked();
}

TEST(Stop, TheInnermostCounts) {
  const std::atomic<bool> asked = true;
  const Stoppable outer(&asked);
  expect_error(ErrorCode::interrupted, "interrupted", [] { stop_if_asked(); });
  {
    const Stoppable protected_work(nullptr);
    stop_if_asked();
  }
  expect_error(ErrorCode::interrupted, "interrupted", [] { stop_if_asked(); });
}

TEST(Stop, AQuestionIsAskedNowAndThenAndItsAnswerStays) {
  int questions = 0;
  const Stoppable asking([&] { return ++questions == 3; });
  const auto begin = std::chrono::steady_clock::now();
  const auto work = [&] {
    while (std::chrono::steady_clock::now() - begin < std::chrono::minutes(1)) stop_if_asked();
  };
  expect_error(ErrorCode::interrupted, "interrupted", work);
  EXPECT_EQ(questions, 3);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(150));
  expect_error(ErrorCode::interrupted, "interrupted", [] { stop_if_asked(); });
  EXPECT_EQ(questions, 3);
}

TEST(Stop, HelpersStopWithTheThreadThatAsks) {
  const Stoppable asking([] { return true; });
  const auto begin = std::chrono::steady_clock::now();
  const auto work = [&](std::size_t) {
    while (std::chrono::steady_clock::now() - begin < std::chrono::minutes(1)) {
      stop_if_asked();
      std::this_thread::yield();
    }
  };
  expect_error(ErrorCode::interrupted, "interrupted", [&] { side_by_side(2, 2, work); });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(50));
}

}  // namespace
}  // namespace penstock
