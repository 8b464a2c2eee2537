// After long silence a state is zero. Denormal numbers would slow some processors down.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/denormals.h"
#include "penstock/recurrent.h"
#include "penstock/scan.h"
#include "support/denormals.h"

namespace penstock {
namespace {

class Silence : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!test::can_count_denormals_as_zeros()) GTEST_SKIP() << "this processor knows one mode only";
  }
};

/// Without weights each state is half the one before: 2^-126 is the last that is not denormal.
TEST_P(Silence, EndsInZeros) {
  constexpr Index steps = 140, hidden = 19;
  Recurrent<float> network({.cell = GetParam(), .input_size = 1, .hidden_size = hidden});
  for (auto& parameter : network.parameters()) std::ranges::fill(parameter.value, 0.0f);
  network.weights_changed();
  const std::vector<float> x(steps), start(hidden, 1.0f);
  std::vector<float> y(steps * hidden), end(hidden, -1.0f);
  network.forward({.rows = 1, .steps = steps}, SequenceView<const float>::batch_first(x.data(), steps, 1),
                  SequenceView<float>::batch_first(y.data(), steps, hidden), start.data(), end.data());
  EXPECT_FALSE(test::counts_denormals_as_zeros()) << "the caller's own arithmetic stays as it was";
  const WithDenormals as_zeros(DenormalMode::zeros());
  std::vector<float> state = start, step(hidden);
  for (Index t = 0; t < steps; ++t) {
    network.step(1, x.data(), step.data(), state.data());
    const float want = t < 126 ? std::ldexp(1.0f, -static_cast<int>(t) - 1) : 0.0f;
    for (Index c = 0; c < hidden; ++c) {
      ASSERT_EQ(y[static_cast<std::size_t>(t * hidden + c)], want) << "step " << t;
      ASSERT_EQ(step[static_cast<std::size_t>(c)], want) << "step " << t << " of a stream";
    }
  }
  EXPECT_EQ(end, std::vector<float>(hidden, 0.0f));
}

/// In one chunk, and in several, whose decays are products of all their steps'.
TEST(SilentScan, EndsInZeros) {
  if (!test::can_count_denormals_as_zeros()) GTEST_SKIP() << "this processor knows one mode only";
  constexpr Index steps = 3000, channels = 19;
  const std::vector<float> a(steps * channels, 0.5f), b(steps * channels), start(channels, 1.0f);
  for (const Algorithm algorithm : {Algorithm::sequential, Algorithm::scan}) {
    std::vector<float> h(steps * channels, -1.0f), end(channels, -1.0f);
    Execution execution;
    execution.algorithm = algorithm;
    Scan<float>(channels).forward({.rows = 1, .steps = steps},
                                  {SequenceView<const float>::batch_first(a.data(), steps, channels),
                                   SequenceView<const float>::batch_first(b.data(), steps, channels),
                                   {}},
                                  SequenceView<float>::batch_first(h.data(), steps, channels), start.data(), end.data(),
                                  execution);
    EXPECT_FALSE(test::counts_denormals_as_zeros()) << "the caller's own arithmetic stays as it was";
    for (Index t = 0; t < steps; ++t) {
      const float want = t < 126 ? std::ldexp(1.0f, -static_cast<int>(t) - 1) : 0.0f;
      for (Index c = 0; c < channels; ++c) {
        ASSERT_EQ(h[static_cast<std::size_t>(t * channels + c)], want) << to_string(algorithm) << ", step " << t;
      }
    }
    EXPECT_EQ(end, std::vector<float>(channels, 0.0f));
  }
}

INSTANTIATE_TEST_SUITE_P(Each, Silence, testing::Values("mingru", "gru"));

}  // namespace
}  // namespace penstock
