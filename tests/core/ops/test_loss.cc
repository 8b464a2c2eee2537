// Losses against numbers worked out by hand, and their gradients against finite differences.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/random.h"
#include "ops/training/loss.h"
#include "support/expect_error.h"

namespace penstock::ops {
namespace {

/// Memory for one call of a loss, of any content.
struct Space {
  explicit Space(Index count) : positions(count), memory(LossScratch::bytes(count) / sizeof(double) + 1, -7.0) {}
  LossScratch scratch() { return LossScratch::in(memory.data(), positions); }

  Index positions;
  std::vector<double> memory;
};

using testing::ElementsAre;
using testing::FloatNear;

TEST(CrossEntropy, AgreesWithTheFormula) {
  Space space(3);
  // Row 0: softmax of (ln 1, ln 2, ln 5) is (1/8, 2/8, 5/8). Row 1 is not scored. Row 2: equal logits, even huge ones.
  const std::vector<float> logits = {0.0f, std::log(2.0f), std::log(5.0f), 9.0f, 9.0f, 9.0f, 5000.0f, 5000.0f, 5000.0f};
  const std::vector<std::int32_t> labels = {2, -1, 0};
  std::vector<float> gradient(9, -7.0f);
  const LossSum loss = cross_entropy(0, 3, 3, logits.data(), labels.data(), gradient.data(), space.scratch());
  EXPECT_NEAR(loss.sum, std::log(8.0 / 5.0) + std::log(3.0), 1e-6);
  EXPECT_NEAR(loss.mean(), loss.sum / 2.0, 1e-12);
  EXPECT_EQ(loss.scored, 2);
  EXPECT_EQ(loss.correct, 2);
  const float tolerance = 1e-7f;
  EXPECT_THAT(gradient, ElementsAre(FloatNear(0.0625f, tolerance), FloatNear(0.125f, tolerance),
                                    FloatNear(-0.1875f, tolerance), 0.0f, 0.0f, 0.0f, FloatNear(-1.0f / 3, tolerance),
                                    FloatNear(1.0f / 6, tolerance), FloatNear(1.0f / 6, tolerance)));
  EXPECT_DOUBLE_EQ(cross_entropy(0, 3, 3, logits.data(), labels.data(), nullptr, space.scratch()).sum, loss.sum);
}

TEST(CrossEntropy, WithNothingScoredIsZero) {
  Space space(2);
  const std::vector<float> logits(6, 1.0f);
  const std::vector<std::int32_t> labels = {-1, -1};
  std::vector<float> gradient(6, -7.0f);
  const LossSum loss = cross_entropy(0, 2, 3, logits.data(), labels.data(), gradient.data(), space.scratch());
  EXPECT_EQ(loss.mean(), 0.0);
  EXPECT_THAT(gradient, testing::Each(0.0f));
}

TEST(CrossEntropy, DoesNotDependOnThreads) {
  Space space(2000);
  Random random(1);
  std::vector<float> logits(2000 * 64);
  std::vector<std::int32_t> labels(2000);
  for (float& logit : logits) logit = static_cast<float>(3.0 * random.normal());
  for (auto& label : labels) label = static_cast<std::int32_t>(random.below(64));
  std::vector<float> one(logits.size()), four(logits.size());
  const double sum = cross_entropy(1, 2000, 64, logits.data(), labels.data(), one.data(), space.scratch()).sum;
  EXPECT_EQ(cross_entropy(4, 2000, 64, logits.data(), labels.data(), four.data(), space.scratch()).sum, sum);
  EXPECT_EQ(one, four);
}

TEST(CrossEntropy, RefusesALabelThatIsNoClass) {
  Space space(1);
  const std::vector<float> logits(3, 1.0f);
  for (const std::int32_t label : {3, -2}) {
    test::expect_error(ErrorCode::invalid_argument, fmt::format("label {} is outside -1..2", label),
                       [&] { cross_entropy(0, 1, 3, logits.data(), &label, nullptr, space.scratch()); });
  }
}

TEST(Regression, WeighsAndIgnores) {
  Space space(3);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> y = {1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f};
  const std::vector<float> targets = {0.0f, 5.0f, nan, 4.0f, nan, nan};
  const std::vector<float> weights = {1.0f, 1.0f, 0.0f, 2.0f, 0.0f, 0.0f};  // three steps of two values
  std::vector<float> gradient(6, -7.0f);
  const Regression batch{3, 2, y.data(), targets.data(), weights.data()};
  LossSum loss = regression_loss(LossKind::mse, 0, batch, gradient.data(), space.scratch());
  EXPECT_DOUBLE_EQ(loss.mean(), (1.0 + 9.0 + 0.0) / 4.0);
  EXPECT_EQ(loss.scored, 2);
  EXPECT_THAT(gradient, ElementsAre(0.5f, -1.5f, 0.0f, 0.0f, 0.0f, 0.0f));
  loss = regression_loss(LossKind::mae, 0, batch, gradient.data(), space.scratch());
  EXPECT_DOUBLE_EQ(loss.mean(), (1.0 + 3.0 + 0.0) / 4.0);
  EXPECT_THAT(gradient, ElementsAre(0.25f, -0.25f, 0.0f, 0.0f, 0.0f, 0.0f));
}

TEST(Regression, AScoredNanShows) {
  Space space(1);
  const float y = 1.0f, target = std::numeric_limits<float>::quiet_NaN(), weight = 1.0f;
  const Regression batch{1, 1, &y, &target, &weight};
  float gradient = 0.0f;
  EXPECT_TRUE(std::isnan(regression_loss(LossKind::mse, 0, batch, &gradient, space.scratch()).mean()));
  EXPECT_TRUE(std::isnan(gradient));
  EXPECT_TRUE(std::isnan(regression_loss(LossKind::mae, 0, batch, &gradient, space.scratch()).mean()));
  EXPECT_TRUE(std::isnan(gradient));
}

}  // namespace
}  // namespace penstock::ops
