// Streams on a GPU. Needs one.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "backend/cuda/driver/driver.h"
#include "penstock/session_pool.h"
#include "penstock/stream.h"

namespace penstock {
namespace {

class OnGpu : public testing::TestWithParam<Precision> {};

TEST_P(OnGpu, AStreamIsTheSequence) {
  if (!cuda::driver_complaint().empty()) GTEST_SKIP() << cuda::driver_complaint();
  DataDescription data;
  data.task = Task::language;
  data.vocabulary = 50;
  const Model model({.cell = "mingru", .width = 40, .blocks = 2, .convolution = 3, .feed_forward = 1.5}, data, 3);
  std::vector<std::int32_t> tokens(20);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>(i * 7 % 50);
  std::vector<float> want(tokens.size() * 50);
  ModelState state = model.state(1);
  model.forward(1, 20, tokens, want, state);
  double largest = 0.0;
  for (const float value : want) largest = std::max(largest, std::abs(static_cast<double>(value)));
  const double part = GetParam() == Precision::full ? 1e-5 : GetParam() == Precision::bf16 ? 0.05 : 0.01;
  Session session(model, {.precision = GetParam(), .device = Device::cuda()});
  for (int round = 0; round < 2; ++round) {
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      const auto logits = session.push(tokens[t]);
      for (std::size_t c = 0; c < 50; ++c) {
        ASSERT_NEAR(logits[c], want[t * 50 + c], part * largest) << "round " << round << ", step " << t;
      }
    }
    session.reset();
  }
}

/// Tokens of `rows` streams on a device: pushed, with a reset of one row on the way, then drawn.
std::vector<std::int32_t> written(const Model& model, Index rows, const Sampling& sampling, Index steps,
                                  const Execution& execution, std::uint64_t first_seed = 50) {
  SessionBatch batch(model, rows, execution);
  std::vector<std::int32_t> prompt(static_cast<std::size_t>(rows));
  for (Index step = 0; step < 6; ++step) {
    if (step == 3 && rows > 1) batch.reset(1);
    for (Index row = 0; row < rows; ++row) {
      prompt[static_cast<std::size_t>(row)] = static_cast<std::int32_t>((first_seed - 50 + row + 5 * step) % 50);
    }
    batch.push(prompt);
  }
  for (Index row = 0; row < rows; ++row) batch.seed(row, first_seed + static_cast<std::uint64_t>(row));
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(rows * steps));
  batch.generate(sampling, steps, tokens);
  return tokens;
}

TEST_P(OnGpu, ManyStreamsAreTheSequences) {
  if (!cuda::driver_complaint().empty()) GTEST_SKIP() << cuda::driver_complaint();
  DataDescription data;
  data.vocabulary = 50;
  const double part = GetParam() == Precision::full ? 1e-5 : GetParam() == Precision::bf16 ? 0.05 : 0.01;
  for (const char* const cell : {"mingru", "minlstm-log", "lstm", "gru"}) {
    const Model model({.cell = cell, .width = 40, .blocks = 2, .convolution = 3, .feed_forward = 1.5}, data, 3);
    for (const Index rows : {1, 2, 9, 130}) {
      SCOPED_TRACE(testing::Message() << cell << ", " << rows << " rows");
      SessionBatch here(model, rows), there(model, rows, {.precision = GetParam(), .device = Device::cuda()});
      for (Index step = 0; step < 8; ++step) {
        if (step == 4) here.reset(rows - 1), there.reset(rows - 1);
        std::vector<std::int32_t> tokens(static_cast<std::size_t>(rows));
        for (Index row = 0; row < rows; ++row) {
          tokens[static_cast<std::size_t>(row)] = static_cast<std::int32_t>((7 * row + 3 * step) % 50);
        }
        const auto want = here.push(tokens), got = there.push(tokens);
        double largest = 0.0;
        for (const float value : want) largest = std::max(largest, std::abs(static_cast<double>(value)));
        for (std::size_t i = 0; i < want.size(); ++i) {
          ASSERT_NEAR(got[i], want[i], part * largest) << "step " << step << ", value " << i;
        }
      }
    }
  }
}

TEST_P(OnGpu, TheSameSeedsWriteTheSame) {
  if (!cuda::driver_complaint().empty()) GTEST_SKIP() << cuda::driver_complaint();
  DataDescription data;
  data.vocabulary = 50;
  const Model model({.cell = "mingru", .width = 40, .blocks = 2, .convolution = 3, .feed_forward = 1.5}, data, 3);
  const Execution gpu{.precision = GetParam(), .device = Device::cuda()};
  constexpr Index rows = 5, steps = 150;  // several recordings, and more than is read back at a time
  const std::vector<std::int32_t> once = written(model, rows, {}, steps, gpu);
  EXPECT_EQ(written(model, rows, {}, steps, gpu), once);
  EXPECT_NE(written(model, rows, {}, steps, gpu, 51), once);
  if (GetParam() != Precision::full) return;
  // In floats the devices differ by less than lies between two tokens, here.
  EXPECT_EQ(once, written(model, rows, {}, steps, {}));
  const Sampling likeliest{.temperature = 0.0};
  EXPECT_EQ(written(model, rows, likeliest, steps, gpu), written(model, rows, likeliest, steps, {}));
  const std::vector<std::int32_t> alone = written(model, 1, {}, steps, gpu);
  EXPECT_EQ(alone, std::vector<std::int32_t>(once.begin(), once.begin() + steps));
}

/// Sessions of a pool on a GPU, and each alone on a CPU.
class Pooled {
 public:
  Pooled(const Model& model, Index capacity, double part, const Execution& gpu)
      : pool_(model, capacity, gpu), model_(model), part_(part) {}

  void open() { all_.push_back({pool_.open(), std::make_unique<Session>(model_)}); }
  void close(std::size_t i) {
    pool_.close(all_[i].pooled);
    all_.erase(all_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  /// A step of every `each`th session, the first at `begin`; the same tokens on both devices.
  void push(std::size_t begin, std::size_t each) {
    std::vector<PooledSession> sessions;
    std::vector<std::int32_t> tokens;
    std::vector<float> want;
    for (std::size_t i = begin; i < all_.size(); i += each) {
      sessions.push_back(all_[i].pooled);
      tokens.push_back(static_cast<std::int32_t>((7 * i + 3 * step_) % 50));
      const std::span<const float> alone = all_[i].alone->push(tokens.back());
      want.insert(want.end(), alone.begin(), alone.end());
    }
    std::vector<float> got(want.size());
    ASSERT_TRUE(pool_.push(sessions, tokens, got).empty());
    double largest = 0.0;
    for (const float value : want) largest = std::max(largest, std::abs(static_cast<double>(value)));
    for (std::size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], part_ * largest) << i / 50;
    ++step_;
  }
  /// Lets two sessions exchange their states.
  void swap(std::size_t a, std::size_t b) {
    const std::vector<float> first = pool_.state(all_[a].pooled), second = pool_.state(all_[b].pooled);
    pool_.restore(all_[a].pooled, second);
    pool_.restore(all_[b].pooled, first);
    std::swap(all_[a].alone, all_[b].alone);
  }
  void reset(std::size_t i) {
    pool_.reset(all_[i].pooled);
    all_[i].alone->reset();
  }

 private:
  struct Twin {
    PooledSession pooled;
    std::unique_ptr<Session> alone;
  };
  SessionPool pool_;
  const Model& model_;
  double part_;
  std::vector<Twin> all_;
  std::size_t step_ = 0;
};

TEST_P(OnGpu, PoolsAreTheSequences) {
  if (!cuda::driver_complaint().empty()) GTEST_SKIP() << cuda::driver_complaint();
  DataDescription data;
  data.vocabulary = 50;
  const double part = GetParam() == Precision::full ? 1e-5 : GetParam() == Precision::bf16 ? 0.05 : 0.01;
  for (const char* const cell : {"mingru", "lstm"}) {
    SCOPED_TRACE(cell);
    // Widths of 40 and of 21: states that are and are not multiples of four floats.
    const Index width = cell[0] == 'l' ? 21 : 40;
    const Model model({.cell = cell, .width = width, .blocks = 2, .convolution = 3, .feed_forward = 1.5}, data, 3);
    Pooled pool(model, 200, part, {.precision = GetParam(), .device = Device::cuda()});  // batches of 64, 128, 200
    for (int i = 0; i < 190; ++i) pool.open();
    ASSERT_NO_FATAL_FAILURE(pool.push(0, 1));
    ASSERT_NO_FATAL_FAILURE(pool.push(1, 2));
    pool.close(40), pool.close(7), pool.open();
    pool.reset(12), pool.swap(3, 90);
    ASSERT_NO_FATAL_FAILURE(pool.push(0, 50));
    ASSERT_NO_FATAL_FAILURE(pool.push(0, 1));
    ASSERT_NO_FATAL_FAILURE(pool.push(2, 3));
  }
}

TEST_P(OnGpu, AFailureIsOfOneSessionOfAPool) {
  if (!cuda::driver_complaint().empty()) GTEST_SKIP() << cuda::driver_complaint();
  DataDescription data;
  data.task = Task::forecast;
  data.inputs = {{"a", 0.0, 1.0}, {"b", 0.0, 1.0}};
  data.targets = {{"a", 0.0, 1.0}};
  const Model model({.cell = "gru", .width = 21, .blocks = 2, .hidden_size = 26, .convolution = 3, .feed_forward = 1.4},
                    data, 7);
  SessionPool pool(model, 4, {.precision = GetParam(), .device = Device::cuda()});
  const std::vector sessions = {pool.open(), pool.open(), pool.open()};
  std::vector<float> features(6, 0.25f), outputs(3), extreme(pool.state(sessions[0]).size());
  std::ranges::fill(extreme, std::numeric_limits<float>::max());
  ASSERT_TRUE(pool.push(sessions, features, outputs).empty());
  const std::vector<float> before = pool.state(sessions[0]);
  pool.restore(sessions[1], extreme);
  features[1] = NAN;
  const std::vector<PoolFailure> failures = pool.push(sessions, features, outputs);
  ASSERT_EQ(failures.size(), 2u);
  EXPECT_EQ(failures[0].error.code(), ErrorCode::invalid_argument);
  EXPECT_EQ(failures[1].error.code(), ErrorCode::numerical);
  EXPECT_EQ(pool.state(sessions[0]), before);
  EXPECT_EQ(pool.state(sessions[1]), std::vector<float>(extreme.size()));
  EXPECT_NE(pool.state(sessions[2]), before);
  EXPECT_TRUE(std::isnan(outputs[0]) && std::isnan(outputs[1]) && std::isfinite(outputs[2]));
  // A closed session between two others.
  const std::vector states = {pool.state(sessions[0]), pool.state(sessions[2])};
  pool.close(sessions[1]);
  features = {0.25f, 0.5f, 0.0f, 0.0f, -1.5f, 1.0f};
  ASSERT_EQ(pool.push(sessions, features, outputs).size(), 1u);
  EXPECT_GT(std::abs(outputs[0] - outputs[2]), 0.01f);
  for (const std::size_t i : {0, 2}) {
    float alone = 0.0f;
    pool.restore(sessions[i], states[i / 2]);
    pool.push({&sessions[i], 1}, std::span<const float>(features).subspan(2 * i, 2), {&alone, 1});
    EXPECT_NEAR(outputs[i], alone, 1e-3) << "position " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Cuda, OnGpu, testing::Values(Precision::full, Precision::bf16, Precision::f16),
                         [](const auto& tested) { return std::string(to_string(tested.param)); });

}  // namespace
}  // namespace penstock
