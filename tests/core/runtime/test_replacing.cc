// A session that takes the place of another while it runs, and streams that begin in silence.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <thread>

#include "core/runtime/handles.h"
#include "core/runtime/models.h"
#include "core/runtime/networks.h"
#include "support/tolerance.h"

namespace penstock::test {
namespace {

/// -90 dBFS.
const float kClick = std::pow(10.0F, -90.0F / 20.0F);

std::vector<float> sine(int t) {
  return {0.8F * std::sin(0.05F * static_cast<float>(t)), 0.3F * std::sin(0.02F * static_cast<float>(t))};
}

TEST(RuntimeReplacing, FadesWithoutAClick) {
  const std::string one = file_of(series_model("lstm", 16)), two = file_of(series_model("gru", 24));
  const RuntimeModel first(one.data(), one.size()), second(two.data(), two.size());
  RuntimeSession playing(first), old_alone(first), next(second), next_alone(second);
  constexpr int steps = 1 << 16, before = 100;
  for (int t = 0; t < before; ++t) playing.push(sine(t)), old_alone.push(sine(t));
  ASSERT_EQ(penstock_session_replace(playing.get(), next.get(), steps, nullptr), PENSTOCK_OK);
  EXPECT_EQ(penstock_session_reset(next.get(), nullptr), PENSTOCK_INVALID_ARGUMENT);  // its handle is closed
  next.closed();
  std::vector<float> last, last_old, last_new;
  double worst = 0;
  for (int t = before; t < before + steps + 10; ++t) {
    const std::vector<float> got = playing.push(sine(t)), from = old_alone.push(sine(t)), to = next_alone.push(sine(t));
    const double share = std::min(1.0, static_cast<double>(t - before + 1) / steps);
    for (std::size_t i = 0; i < got.size(); ++i) {
      const double want = (1 - share) * static_cast<double>(from[i]) + share * static_cast<double>(to[i]);
      ASSERT_NEAR(got[i], want, 1e-5) << "step " << t;
      if (last.empty()) continue;
      // What the answers of both do by themselves is no click.
      const double own =
          (1 - share) * static_cast<double>(from[i] - last_old[i]) + share * static_cast<double>(to[i] - last_new[i]);
      worst = std::max(worst, std::abs(static_cast<double>(got[i] - last[i]) - own));
    }
    last = got, last_old = from, last_new = to;
  }
  EXPECT_LT(worst, static_cast<double>(kClick));
  EXPECT_TRUE(same_bits(last, last_new));
}

TEST(RuntimeReplacing, GoesOnAsTheNewSession) {
  const std::string one = file_of(series_model("lstm", 16)), two = file_of(series_model("gru", 24));
  const RuntimeModel first(one.data(), one.size()), second(two.data(), two.size());
  RuntimeSession playing(first), next(second), alone(second), third(first);
  playing.push(sine(0));
  ASSERT_EQ(penstock_session_replace(playing.get(), next.get(), 2, nullptr), PENSTOCK_OK);
  next.closed();
  EXPECT_EQ(penstock_session_replace(playing.get(), third.get(), 2, nullptr), PENSTOCK_INVALID_ARGUMENT);
  for (int t = 1; t < 3; ++t) playing.push(sine(t)), alone.push(sine(t));
  std::vector<float> state(second.info().state_size);
  ASSERT_EQ(penstock_session_get_state(playing.get(), state.data(), state.size(), nullptr), PENSTOCK_OK);
  EXPECT_TRUE(same_bits(state, alone.state()));
  EXPECT_TRUE(same_bits(playing.push(sine(3)), alone.push(sine(3))));
  ASSERT_EQ(penstock_session_replace(playing.get(), third.get(), 1, nullptr), PENSTOCK_OK);  // the first is freed
  third.closed();
  ASSERT_EQ(penstock_session_reset(playing.get(), nullptr), PENSTOCK_OK);
  RuntimeSession fresh(first);
  EXPECT_TRUE(same_bits(playing.push(sine(0)), fresh.push(sine(0))));
}

TEST(RuntimeReplacing, RefusesOtherSizes) {
  const std::string one = file_of(series_model()), text = file_of(text_model()), network = file_of(listener());
  const RuntimeModel first(one.data(), one.size()), letters(text.data(), text.size());
  const RuntimeModel other = open_network(network);
  RuntimeSession playing(first), of_letters(letters), listening(other);
  penstock_error error = {};
  for (penstock_session* next :
       {of_letters.get(), listening.get(), playing.get(), static_cast<penstock_session*>(nullptr)}) {
    EXPECT_EQ(penstock_session_replace(playing.get(), next, 10, &error), PENSTOCK_INVALID_ARGUMENT);
    EXPECT_NE(error.text[0], '\0');
  }
  RuntimeSession alone(first);
  EXPECT_TRUE(same_bits(playing.push(sine(0)), alone.push(sine(0))));
}

TEST(RuntimeReplacing, AThreadRunsStepsMeanwhile) {
  const std::string one = file_of(series_model("lstm", 8)), two = file_of(series_model("gru", 8));
  const RuntimeModel first(one.data(), one.size()), second(two.data(), two.size());
  RuntimeSession playing(first);
  std::atomic<bool> stop = false, fine = true;
  std::thread audio([&] {
    float row[2] = {0.1F, -0.2F}, outputs[2];
    while (!stop) {
      if (penstock_session_step(playing.get(), row, 2, outputs, 2, nullptr) != PENSTOCK_OK) fine = false;
    }
  });
  int replaced = 0;
  while (replaced < 20) {
    penstock_session* next = nullptr;
    penstock_model* const model = replaced % 2 == 0 ? second.get() : first.get();
    ASSERT_EQ(penstock_session_open(model, nullptr, 0, &next, nullptr), PENSTOCK_OK);
    while (penstock_session_replace(playing.get(), next, 50, nullptr) != PENSTOCK_OK) std::this_thread::yield();
    ++replaced;
  }
  stop = true;
  audio.join();
  EXPECT_TRUE(fine);
}

TEST(RuntimeReplacing, AWarmStreamBeginsWithoutAJump) {
  const std::string file = file_of(series_model("gru", 16));
  const RuntimeModel model(file.data(), file.size());
  const std::vector<float> silence = {0.3F, -0.1F};
  RuntimeSession cold(model), warm(model), zeros(model);
  ASSERT_EQ(penstock_session_prewarm(warm.get(), silence.data(), 2, 2000, nullptr), PENSTOCK_OK);
  const std::vector<float> first_cold = cold.push(silence), first_warm = warm.push(silence), then = warm.push(silence);
  EXPECT_NEAR(first_warm[0], then[0], 1e-6);
  for (int t = 1; t < 2001; ++t) cold.push(silence);
  EXPECT_TRUE(same_bits(cold.push(silence), then));
  EXPECT_GT(std::abs(first_cold[0] - then[0]), 1e-4F);
  ASSERT_EQ(penstock_session_prewarm(zeros.get(), nullptr, 0, 3, nullptr), PENSTOCK_OK);
  RuntimeSession pushed(model);
  for (int t = 0; t < 3; ++t) pushed.push({0.0F, 0.0F});
  EXPECT_TRUE(same_bits(zeros.state(), pushed.state()));
  EXPECT_EQ(penstock_session_prewarm(warm.get(), silence.data(), 1, 3, nullptr), PENSTOCK_INVALID_ARGUMENT);
  const std::string text = file_of(text_model());
  const RuntimeModel letters(text.data(), text.size());
  const RuntimeSession tokens(letters);
  EXPECT_EQ(penstock_session_prewarm(tokens.get(), nullptr, 0, 3, nullptr), PENSTOCK_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace penstock::test
