// Steps that wait for a batch: bounds, order, and any number of threads that submit them.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "penstock/session_pool.h"
#include "penstock/stream.h"
#include "stream/small_models.h"
#include "support/expect_error.h"
#include "support/tolerance.h"

namespace penstock {
namespace {

using test::expect_error;
using test::same_bits;
using test::series;
using test::spec_of;
using test::text;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

TEST(PoolQueue, FullIsAnAnswerAndNothingIsLost) {
  const Model model(spec_of("gru"), series(), 3);
  SessionPool pool(model, 8, {.threads = 1}, {.steps = 4, .batch = 3});
  const std::vector<float> row = {0.25f, -0.5f};
  std::vector<PooledSession> sessions;
  for (int i = 0; i < 5; ++i) sessions.push_back(pool.open());
  for (std::size_t i = 0; i < 4; ++i) EXPECT_TRUE(pool.submit(sessions[i], row, i));
  EXPECT_FALSE(pool.submit(sessions[4], row, 4));
  EXPECT_EQ(pool.waiting(), 4);
  const PoolAnswers first = pool.run();
  ASSERT_EQ(first.tags.size(), 3U);
  EXPECT_EQ(pool.waiting(), 1);
  EXPECT_TRUE(pool.submit(sessions[4], row, 4));
  const PoolAnswers second = pool.run();
  ASSERT_EQ(second.tags.size(), 2U);
  EXPECT_EQ(second.tags[0], 3U);
  EXPECT_EQ(second.tags[1], 4U);
  EXPECT_TRUE(second.failures.empty());
  EXPECT_TRUE(pool.run().tags.empty());
}

TEST(PoolQueue, KeepsTheOrderOfASession) {
  const Model model(spec_of("lstm"), text(), 4);
  SessionPool pool(model, 4, {.threads = 1}, {.steps = 30});
  const PooledSession a = pool.open(), b = pool.open(), closed = pool.open();
  pool.close(closed);
  Session alone_a(model), alone_b(model);
  const std::vector<std::int32_t> tokens = {3, 1, 4, 1, 5};
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    ASSERT_TRUE(pool.submit(a, tokens[i], i));
    if (i == 2) {
      ASSERT_TRUE(pool.submit(b, 7, 100));
      ASSERT_TRUE(pool.submit(closed, 7, 101));
      ASSERT_TRUE(pool.submit(b, test::kClasses, 102));
    }
  }
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const PoolAnswers answers = pool.run();
    ASSERT_EQ(answers.tags[0], i);
    const auto of_a = answers.outputs.first(test::kClasses);
    const auto expected = alone_a.push(tokens[i]);
    ASSERT_TRUE(same_bits(std::vector(of_a.begin(), of_a.end()), std::vector(expected.begin(), expected.end())));
    ASSERT_EQ(answers.tags.size(), i == 0 ? 3U : i == 1 ? 2U : 1U);
    ASSERT_EQ(answers.failures.size(), i < 2 ? 1U : 0U);
    if (i == 0) {
      EXPECT_THAT(answers.failures[0].error.what(), testing::HasSubstr("was closed"));
    }
    if (i == 1) {
      EXPECT_THAT(answers.failures[0].error.what(), testing::HasSubstr("token 40"));
    }
  }
  EXPECT_EQ(pool.waiting(), 0);
}

TEST(PoolQueue, AStepWaitsForOthersAsLongAsItMay) {
  const Model model(spec_of("mingru"), series(), 5);
  SessionPool pool(model, 4, {.threads = 1}, {.steps = 8, .wait_s = 0.05, .batch = 2});
  const std::vector<float> row = {0.1f, 0.2f};
  const PooledSession a = pool.open(), b = pool.open();
  auto begin = Clock::now();
  EXPECT_TRUE(pool.run(0.02).tags.empty());
  EXPECT_GE(seconds_since(begin), 0.02);
  begin = Clock::now();
  ASSERT_TRUE(pool.submit(a, row));
  EXPECT_EQ(pool.run(60).tags.size(), 1U);
  EXPECT_GE(seconds_since(begin), 0.05);
  ASSERT_TRUE(pool.submit(a, row));
  std::jthread later([&] { ASSERT_TRUE(pool.submit(b, row)); });
  begin = Clock::now();
  std::size_t answered = 0;
  while (answered < 2 && seconds_since(begin) < 60) answered += pool.run(60).tags.size();
  EXPECT_EQ(answered, 2U);
}

TEST(PoolQueue, ThreadsSubmitWhileOneRuns) {
  const Model model(spec_of("gru"), series(), 6);
  constexpr int producers = 4, of_each = 3, steps = 40;
  SessionPool pool(model, producers * of_each, {.threads = 1}, {.steps = 7, .wait_s = 1e-4});
  std::vector<PooledSession> sessions;
  for (int i = 0; i < producers * of_each; ++i) sessions.push_back(pool.open());
  const auto row = [](int session, int step) {
    return std::vector<float>{0.01f * static_cast<float>(session), 0.02f * static_cast<float>(step)};
  };
  std::atomic<int> refused{0};
  std::vector<std::jthread> threads;
  for (int producer = 0; producer < producers; ++producer) {
    threads.emplace_back([&, producer] {
      for (int step = 0; step < steps; ++step) {
        for (int i = producer * of_each; i < (producer + 1) * of_each; ++i) {
          while (!pool.submit(sessions[static_cast<std::size_t>(i)], row(i, step), static_cast<std::uint64_t>(step))) {
            ++refused;
            std::this_thread::yield();
          }
        }
      }
    });
  }
  std::vector<std::unique_ptr<Session>> alone;
  for (std::size_t i = 0; i < sessions.size(); ++i) alone.push_back(std::make_unique<Session>(model));
  std::vector<int> next(sessions.size());
  const auto begin = Clock::now();
  for (int answered = 0; answered < producers * of_each * steps && seconds_since(begin) < 60;) {
    const PoolAnswers answers = pool.run(1);
    ASSERT_TRUE(answers.failures.empty());
    for (std::size_t i = 0; i < answers.tags.size(); ++i, ++answered) {
      const auto found = std::ranges::find(sessions, answers.sessions[i]) - sessions.begin();
      const int step = next[static_cast<std::size_t>(found)]++;
      ASSERT_EQ(answers.tags[i], static_cast<std::uint64_t>(step));
      const auto expected = alone[static_cast<std::size_t>(found)]->push(row(static_cast<int>(found), step));
      ASSERT_TRUE(std::ranges::equal(answers.outputs.subspan(2 * i, 2), expected));
    }
  }
  for (const int taken : next) EXPECT_EQ(taken, steps);
  EXPECT_EQ(pool.waiting(), 0);
}

TEST(PoolQueue, RefusesInWords) {
  const Model model(spec_of("gru"), series(), 7);
  const auto pool_of = [&](const PoolQueue& queue) { return SessionPool(model, 2, {.threads = 1}, queue); };
  expect_error(ErrorCode::invalid_argument, "queue.steps must be in 0..16777216, not -1",
               [&] { pool_of({.steps = -1}); });
  expect_error(ErrorCode::invalid_argument, "queue.wait_s must be in 0..1000000",
               [&] { pool_of({.steps = 1, .wait_s = -1}); });
  expect_error(ErrorCode::invalid_argument, "queue.batch must be at least 0",
               [&] { pool_of({.steps = 1, .batch = -2}); });
  SessionPool without = pool_of({}), with = pool_of({.steps = 1});
  const PooledSession session = with.open();
  const std::vector<float> row = {0.0f, 0.0f}, longer(3);
  expect_error(ErrorCode::invalid_argument, "this pool has no queue", [&] { without.submit(session, row); });
  expect_error(ErrorCode::invalid_argument, "this pool has no queue", [&] { without.run(); });
  expect_error(ErrorCode::invalid_argument, "features must hold 2 values, not 3",
               [&] { with.submit(session, longer); });
  expect_error(ErrorCode::invalid_argument, "this model reads features, not tokens", [&] { with.submit(session, 1); });
}

}  // namespace
}  // namespace penstock
