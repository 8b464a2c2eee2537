// Streams on a GPU. Needs one.

#include <gtest/gtest.h>

#include <cmath>

#include "backend/cuda/driver/driver.h"
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

INSTANTIATE_TEST_SUITE_P(Cuda, OnGpu, testing::Values(Precision::full, Precision::bf16, Precision::f16),
                         [](const auto& tested) { return std::string(to_string(tested.param)); });

}  // namespace
}  // namespace penstock
