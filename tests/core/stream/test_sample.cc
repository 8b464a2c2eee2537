#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "penstock/stream.h"
#include "support/expect_error.h"

namespace penstock {
namespace {

using testing::ElementsAre;
using testing::Pair;

// Probabilities 1/10, 4/10, 2/10, 3/10.
const std::vector<float> logits = {0.0f, std::log(4.0f), std::log(2.0f), std::log(3.0f)};

/// How often each token is drawn by a thousand evenly spread random numbers.
std::map<std::int32_t, int> draws(const Sampling& sampling) {
  std::map<std::int32_t, int> counts;
  for (int i = 0; i < 1000; ++i) ++counts[sample(logits, sampling, (i + 0.5) / 1000.0)];
  return counts;
}

TEST(Sample, DrawsByProbability) {
  EXPECT_THAT(draws({.temperature = 1.0, .top_k = 0, .top_p = 1.0}),
              ElementsAre(Pair(0, 100), Pair(1, 400), Pair(2, 200), Pair(3, 300)));
}

TEST(Sample, TemperatureSharpensAndFlattens) {
  // At 1/2 the weights are squared: 1, 16, 4, 9 of 30.
  EXPECT_THAT(draws({.temperature = 0.5, .top_k = 0, .top_p = 1.0}),
              ElementsAre(Pair(0, 33), Pair(1, 533), Pair(2, 134), Pair(3, 300)));
  EXPECT_THAT(draws({.temperature = 0.0, .top_k = 0, .top_p = 1.0}), ElementsAre(Pair(1, 1000)));
}

TEST(Sample, KeepsTheLikeliest) {
  EXPECT_THAT(draws({.temperature = 1.0, .top_k = 2, .top_p = 1.0}), ElementsAre(Pair(1, 571), Pair(3, 429)));
  // 0.4 + 0.3 does not reach 0.75, so the third token is in as well.
  EXPECT_THAT(draws({.temperature = 1.0, .top_k = 0, .top_p = 0.75}),
              ElementsAre(Pair(1, 444), Pair(2, 222), Pair(3, 334)));
  EXPECT_THAT(draws({.temperature = 1.0, .top_k = 0, .top_p = 1e-9}), ElementsAre(Pair(1, 1000)));
}

TEST(Sample, SurvivesExtremeLogits) {
  const std::vector<float> extreme = {-3e38f, 3e38f, 0.0f};
  EXPECT_EQ(sample(extreme, {.temperature = 0.1, .top_k = 0, .top_p = 1.0}, 0.999999), 1);
}

TEST(Sample, RefusesWhatMakesNoSense) {
  const auto refused = [](const std::string& message, const Sampling& sampling, double random) {
    test::expect_error(ErrorCode::invalid_argument, message, [&] { sample(logits, sampling, random); });
  };
  refused("temperature must be at least 0, not -1", {.temperature = -1.0}, 0.5);
  refused("top_k must be at least 0, not -1", {.top_k = -1}, 0.5);
  refused("top_p must be in (0, 1], not 0", {.top_p = 0.0}, 0.5);
  refused("random must be in [0, 1), not 1", {}, 1.0);
  const std::vector<float> broken = {1.0f, std::numeric_limits<float>::quiet_NaN()};
  test::expect_error(ErrorCode::numerical, "logits are not finite", [&] { sample(broken, {}, 0.5); });
  test::expect_error(ErrorCode::invalid_argument, "logits must not be empty", [&] { sample({}, {}, 0.5); });
}

}  // namespace
}  // namespace penstock
