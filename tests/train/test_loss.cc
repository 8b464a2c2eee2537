// Losses against numbers worked out by hand, and their gradients against finite differences.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/random.h"
#include "support/expect_error.h"
#include "train/loss.h"

namespace penstock::training {
namespace {

using testing::ElementsAre;
using testing::FloatNear;

TEST(CrossEntropy, AgreesWithTheFormula) {
  // Row 0: softmax of (ln 1, ln 2, ln 5) is (1/8, 2/8, 5/8). Row 1 is not scored. Row 2: equal logits, even huge ones.
  const std::vector<float> logits = {0.0f, std::log(2.0f), std::log(5.0f), 9.0f, 9.0f, 9.0f, 5000.0f, 5000.0f, 5000.0f};
  const std::vector<std::int32_t> labels = {2, -1, 0};
  std::vector<float> gradient(9, -7.0f);
  nn::Arena arena;
  const LossSum loss = cross_entropy(Execution{}, 3, 3, logits.data(), labels.data(), gradient.data(), arena);
  EXPECT_NEAR(loss.sum, std::log(8.0 / 5.0) + std::log(3.0), 1e-6);
  EXPECT_NEAR(loss.mean(), loss.sum / 2.0, 1e-12);
  EXPECT_EQ(loss.scored, 2);
  EXPECT_EQ(loss.correct, 2);
  const float tolerance = 1e-7f;
  EXPECT_THAT(gradient, ElementsAre(FloatNear(0.0625f, tolerance), FloatNear(0.125f, tolerance),
                                    FloatNear(-0.1875f, tolerance), 0.0f, 0.0f, 0.0f, FloatNear(-1.0f / 3, tolerance),
                                    FloatNear(1.0f / 6, tolerance), FloatNear(1.0f / 6, tolerance)));
  EXPECT_DOUBLE_EQ(cross_entropy(Execution{}, 3, 3, logits.data(), labels.data(), nullptr, arena).sum, loss.sum);
}

TEST(CrossEntropy, WithNothingScoredIsZero) {
  const std::vector<float> logits(6, 1.0f);
  const std::vector<std::int32_t> labels = {-1, -1};
  std::vector<float> gradient(6, -7.0f);
  nn::Arena arena;
  const LossSum loss = cross_entropy(Execution{}, 2, 3, logits.data(), labels.data(), gradient.data(), arena);
  EXPECT_EQ(loss.mean(), 0.0);
  EXPECT_THAT(gradient, testing::Each(0.0f));
}

TEST(CrossEntropy, DoesNotDependOnThreads) {
  Random random(1);
  std::vector<float> logits(2000 * 64);
  std::vector<std::int32_t> labels(2000);
  for (float& logit : logits) logit = static_cast<float>(3.0 * random.normal());
  for (auto& label : labels) label = static_cast<std::int32_t>(random.below(64));
  nn::Arena arena;
  std::vector<float> one(logits.size()), four(logits.size());
  const double sum =
      cross_entropy(Execution{.threads = 1}, 2000, 64, logits.data(), labels.data(), one.data(), arena).sum;
  EXPECT_EQ(cross_entropy(Execution{.threads = 4}, 2000, 64, logits.data(), labels.data(), four.data(), arena).sum,
            sum);
  EXPECT_EQ(one, four);
}

TEST(CrossEntropy, RefusesALabelThatIsNoClass) {
  const std::vector<float> logits(3, 1.0f);
  nn::Arena arena;
  for (const std::int32_t label : {3, -2}) {
    test::expect_error(ErrorCode::invalid_argument, fmt::format("label {} is outside -1..2", label),
                       [&] { cross_entropy(Execution{}, 1, 3, logits.data(), &label, nullptr, arena); });
  }
}

TEST(Regression, WeighsAndIgnores) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> y = {1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f};
  const std::vector<float> targets = {0.0f, 5.0f, nan, 4.0f, nan, nan};
  const std::vector<float> weights = {1.0f, 1.0f, 0.0f, 2.0f, 0.0f, 0.0f};  // three steps of two values
  std::vector<float> gradient(6, -7.0f);
  nn::Arena arena;
  LossSum loss =
      mean_squared_error(Execution{}, 3, 2, y.data(), targets.data(), weights.data(), gradient.data(), arena);
  EXPECT_DOUBLE_EQ(loss.mean(), (1.0 + 9.0 + 0.0) / 4.0);
  EXPECT_EQ(loss.scored, 2);
  EXPECT_THAT(gradient, ElementsAre(0.5f, -1.5f, 0.0f, 0.0f, 0.0f, 0.0f));
  loss = mean_absolute_error(Execution{}, 3, 2, y.data(), targets.data(), weights.data(), gradient.data(), arena);
  EXPECT_DOUBLE_EQ(loss.mean(), (1.0 + 3.0 + 0.0) / 4.0);
  EXPECT_THAT(gradient, ElementsAre(0.25f, -0.25f, 0.0f, 0.0f, 0.0f, 0.0f));
}

TEST(Regression, AScoredNanShows) {
  const float y = 1.0f, target = std::numeric_limits<float>::quiet_NaN(), weight = 1.0f;
  float gradient = 0.0f;
  nn::Arena arena;
  EXPECT_TRUE(std::isnan(mean_squared_error(Execution{}, 1, 1, &y, &target, &weight, &gradient, arena).mean()));
  EXPECT_TRUE(std::isnan(gradient));
  EXPECT_TRUE(std::isnan(mean_absolute_error(Execution{}, 1, 1, &y, &target, &weight, &gradient, arena).mean()));
  EXPECT_TRUE(std::isnan(gradient));
}

}  // namespace
}  // namespace penstock::training
