// Streams on a GPU. Needs one.

#include <gtest/gtest.h>

#include <cmath>

#include "backend/cuda/driver.h"
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

INSTANTIATE_TEST_SUITE_P(Cuda, OnGpu, testing::Values(Precision::full, Precision::bf16, Precision::f16),
                         [](const auto& tested) { return std::string(to_string(tested.param)); });

}  // namespace
}  // namespace penstock
