// Sessions of a pool join, step in any company and leave: each answers as a session by itself.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "base/random.h"
#include "penstock/session_pool.h"
#include "penstock/stream.h"
#include "stream/small_models.h"
#include "support/expect_error.h"
#include "support/tolerance.h"

namespace penstock {
namespace {

using test::expect_error;
using test::kClasses;
using test::same_bits;
using test::series;
using test::spec_of;
using test::text;

/// A session of the pool, and one by itself that gets the same steps.
struct Twin {
  PooledSession pooled;
  std::unique_ptr<Session> alone;
};

void expect_same(const std::vector<float>& outputs, std::size_t position, std::span<const float> alone) {
  const auto first = outputs.begin() + static_cast<std::ptrdiff_t>(position * alone.size());
  ASSERT_TRUE(same_bits(std::vector<float>(first, first + static_cast<std::ptrdiff_t>(alone.size())),
                        std::vector<float>(alone.begin(), alone.end())))
      << "position " << position;
}

class Pool : public testing::TestWithParam<std::string> {};

TEST_P(Pool, EverySessionAnswersAsOneByItselfToTheBit) {
  const Model model(spec_of(GetParam()), text(), 5);
  constexpr Index capacity = 150;  // two full batches and a part of one
  for (const int threads : {1, 2}) {
    SCOPED_TRACE(testing::Message() << threads << " threads");
    SessionPool pool(model, capacity, {.threads = threads});
    std::vector<Twin> twins;
    Random random(3);
    for (int call = 0; call < 25; ++call) {
      while (static_cast<Index>(twins.size()) < capacity && random.below(12) != 0) {
        twins.push_back({pool.open(), std::make_unique<Session>(model)});
      }
      if (call % 4 == 3) {
        const auto leaving = static_cast<std::size_t>(random.below(twins.size()));
        pool.close(twins[leaving].pooled);
        twins.erase(twins.begin() + static_cast<std::ptrdiff_t>(leaving));
        pool.reset(twins.front().pooled);
        twins.front().alone->reset();
      }
      std::vector<std::size_t> chosen;
      for (std::size_t i = 0; i < twins.size(); ++i) {
        if (call % 5 == 0 || random.below(3) == 0) chosen.insert(chosen.begin() + random.below(chosen.size() + 1), i);
      }
      std::vector<PooledSession> sessions;
      std::vector<std::int32_t> tokens;
      for (const std::size_t i : chosen) {
        sessions.push_back(twins[i].pooled);
        tokens.push_back(static_cast<std::int32_t>(random.below(kClasses)));
      }
      std::vector<float> logits(chosen.size() * kClasses);
      ASSERT_TRUE(pool.push(sessions, tokens, logits).empty());
      for (std::size_t i = 0; i < chosen.size(); ++i) {
        expect_same(logits, i, twins[chosen[i]].alone->push(tokens[i]));
      }
      ASSERT_EQ(pool.open_sessions(), static_cast<Index>(twins.size()));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cells, Pool, testing::Values("mingru", "minlstm-log", "lstm", "gru", "slstm", "elman"),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST(SessionPool, AStateMovesBetweenPoolsAndSessions) {
  const Model model(spec_of("lstm"), series(), 6);
  SessionPool pool(model, 5, {.threads = 1}), other(model, 1);
  const std::vector<float> row = {0.3f, -0.2f};
  std::vector<float> output(2);
  const PooledSession a = pool.open(), b = pool.open(), moved = other.open();
  Session alone(model);
  for (int step = 0; step < 4; ++step) {
    ASSERT_TRUE(pool.push(std::vector{b}, row, output).empty());
    alone.push(row);
  }
  EXPECT_TRUE(same_bits(pool.state(b), alone.state()));
  other.restore(moved, pool.state(b));
  pool.restore(a, alone.state());
  for (int step = 0; step < 3; ++step) {
    const std::span<const float> expected = alone.push(row);
    ASSERT_TRUE(other.push(std::vector{moved}, row, output).empty());
    expect_same(output, 0, expected);
    ASSERT_TRUE(pool.push(std::vector{a}, row, output).empty());
    expect_same(output, 0, expected);
  }
  std::vector<float> state = pool.state(a);
  state.back() = std::numeric_limits<float>::infinity();
  expect_error(ErrorCode::invalid_argument, "state must hold finite values", [&] { pool.restore(a, state); });
  state.pop_back();
  expect_error(ErrorCode::invalid_argument, "state must hold", [&] { pool.restore(a, state); });
}

TEST(SessionPool, AFailureIsOfOneSession) {
  const Model model(spec_of("gru"), series(), 7);
  SessionPool pool(model, 40, {.threads = 2}), other(model, 1);
  std::vector<Twin> twins;
  for (int i = 0; i < 36; ++i) twins.push_back({pool.open(), std::make_unique<Session>(model)});
  const PooledSession closed = pool.open(), stranger = other.open();
  pool.close(closed);
  const PooledSession follower = pool.open();  // has the place of the closed one
  std::vector<float> extreme = pool.state(follower);
  std::ranges::fill(extreme, std::numeric_limits<float>::max());

  std::vector<PooledSession> sessions;
  for (const Twin& twin : twins) sessions.push_back(twin.pooled);
  sessions.insert(sessions.end(), {closed, stranger, twins[4].pooled, PooledSession{}, follower});
  std::vector<float> features(2 * sessions.size(), 0.25f), outputs(2 * sessions.size());
  features[2 * 9 + 1] = std::numeric_limits<float>::quiet_NaN();
  features[2 * 11] = -3e12f;
  for (int call = 0; call < 3; ++call) {
    pool.restore(follower, extreme);
    const std::vector<PoolFailure> failures = pool.push(sessions, features, outputs);
    const std::vector<std::pair<Index, std::string>> expected = {
        {9, "features must be numbers of at most 1e+12, not nan"},
        {11, "features must be numbers of at most 1e+12, not -3000000000000"},
        {36, "was closed"},
        {37, "is not of this pool"},
        {38, "comes twice"},
        {39, "is not of this pool"},
        {40, "the model's answer is not finite; the session was reset"}};
    ASSERT_EQ(failures.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(failures[i].position, expected[i].first);
      EXPECT_THAT(failures[i].error.what(), testing::HasSubstr(expected[i].second));
      EXPECT_EQ(failures[i].error.code() == ErrorCode::numerical, i == 6);
      EXPECT_TRUE(std::isnan(outputs[static_cast<std::size_t>(2 * failures[i].position)]));
    }
    for (std::size_t i = 0; i < twins.size(); ++i) {
      if (i != 9 && i != 11) expect_same(outputs, i, twins[i].alone->push(std::vector{0.25f, 0.25f}));
    }
    EXPECT_TRUE(same_bits(pool.state(follower), std::vector<float>(extreme.size())));
    EXPECT_TRUE(same_bits(pool.state(twins[9].pooled), Session(model).state()));
  }
}

TEST(SessionPool, RefusesWhatItCannotDo) {
  const Model model(spec_of("mingru"), text(), 9);
  expect_error(ErrorCode::invalid_argument, "capacity must be in 1..16777216, not 0", [&] { SessionPool(model, 0); });
  std::optional<SessionPool> pool(std::in_place, model, 2);
  const std::vector sessions = {pool->open(), pool->open()};
  expect_error(ErrorCode::out_of_memory, "all 2 sessions of the pool are open: close one", [&] { pool->open(); });
  std::vector<float> logits(2 * kClasses);
  const std::vector<std::int32_t> tokens = {1, 2}, one = {1};
  expect_error(ErrorCode::invalid_argument, "tokens must hold 2 values, not 1",
               [&] { pool->push(sessions, one, logits); });
  expect_error(ErrorCode::invalid_argument, "outputs must hold 80 values, not 79",
               [&] { pool->push(sessions, tokens, std::span(logits).first(79)); });
  expect_error(ErrorCode::invalid_argument, "this model reads tokens, not features",
               [&] { pool->push(sessions, logits, logits); });
  pool->close(sessions[0]);
  expect_error(ErrorCode::invalid_argument, "was closed", [&] { pool->close(sessions[0]); });
  expect_error(ErrorCode::invalid_argument, "was closed", [&] { pool->reset(sessions[0]); });
  EXPECT_TRUE(pool->push({}, std::span<const std::int32_t>(), {}).empty());
  SessionPool moved = std::move(*pool);
  EXPECT_EQ(moved.open_sessions(), 1);
  expect_error(ErrorCode::invalid_argument, "the pool of sessions must not have been moved from",
               [&] { pool->open(); });
}

}  // namespace
}  // namespace penstock
