// Two updates worked out by hand for each rule.

#include <gtest/gtest.h>

#include <cmath>

#include "train/optimizer.h"

namespace penstock::training {
namespace {

/// A matrix of one value, which decays, and a bias of one value, which does not.
nn::ParameterLayout small_layout() {
  nn::ParameterLayout layout;
  layout.add("weight", {1, 1}, true);
  layout.add("bias", {1}, false);
  return layout;
}

struct Small {
  Small() : parameters(small_layout()) { parameters.allocate_gradients(); }
  float& value(std::size_t i) { return parameters.value(parameters.layout().entries()[i])[0]; }
  float& gradient(std::size_t i) { return parameters.gradient(parameters.layout().entries()[i])[0]; }
  nn::Parameters<float> parameters;
};

TEST(AdamW, TwoStepsByHand) {
  Small small;
  small.value(0) = 1.0f;
  small.value(1) = -2.0f;
  TrainOptions options;
  options.weight_decay = 0.5;
  options.beta1 = 0.9;
  options.beta2 = 0.99;
  options.epsilon = 1e-8;
  const auto rule = make_optimizer(options, small.parameters.layout());
  // Step 1, rate 0.1: whatever the gradient, m/(1-b1) = g and sqrt(v/(1-b2)) = |g|, so a step of the rate.
  small.gradient(0) = 0.5f;
  small.gradient(1) = -4.0f;
  rule->update(small.parameters, 0.1, 1.0, Execution{});
  EXPECT_NEAR(small.value(0), 1.0 * (1.0 - 0.1 * 0.5) - 0.1, 1e-6);
  EXPECT_NEAR(small.value(1), -2.0 + 0.1, 1e-6);
  // Step 2, rate 0.2, gradients halved by clipping from 2 to 1 and from 1 to 0.5.
  const double before0 = small.value(0), before1 = small.value(1);
  small.gradient(0) = 2.0f;
  small.gradient(1) = 1.0f;
  rule->update(small.parameters, 0.2, 0.5, Execution{});
  const double m0 = (0.9 * 0.05 + 0.1 * 1.0) / (1.0 - 0.81);
  const double v0 = (0.99 * 0.0025 + 0.01 * 1.0) / (1.0 - 0.9801);
  EXPECT_NEAR(small.value(0), before0 * (1.0 - 0.2 * 0.5) - 0.2 * m0 / (std::sqrt(v0) + 1e-8), 1e-6);
  const double m1 = (0.9 * -0.4 + 0.1 * 0.5) / (1.0 - 0.81);
  const double v1 = (0.99 * 0.16 + 0.01 * 0.25) / (1.0 - 0.9801);
  EXPECT_NEAR(small.value(1), before1 - 0.2 * m1 / (std::sqrt(v1) + 1e-8), 1e-6);
  EXPECT_EQ(rule->updates(), 2);
}

TEST(Sgd, TwoStepsByHand) {
  Small small;
  small.value(0) = 1.0f;
  small.value(1) = -2.0f;
  TrainOptions options;
  options.optimizer = Optimizer::sgd;
  options.weight_decay = 0.5;
  options.momentum = 0.8;
  const auto rule = make_optimizer(options, small.parameters.layout());
  small.gradient(0) = 2.0f;
  small.gradient(1) = 3.0f;
  rule->update(small.parameters, 0.1, 1.0, Execution{});
  EXPECT_FLOAT_EQ(small.value(0), 0.95f - 0.2f);
  EXPECT_FLOAT_EQ(small.value(1), -2.3f);
  small.gradient(0) = -1.0f;
  small.gradient(1) = 0.0f;
  rule->update(small.parameters, 0.1, 1.0, Execution{});
  EXPECT_FLOAT_EQ(small.value(0), 0.75f * 0.95f - 0.1f * (0.8f * 2.0f - 1.0f));
  EXPECT_FLOAT_EQ(small.value(1), -2.3f - 0.1f * 2.4f);
}

TEST(Optimizer, GapsBetweenTensorsStayZero) {
  Small small;
  for (float& gradient : small.parameters.gradients()) gradient = 0.0f;
  small.gradient(0) = small.gradient(1) = 1.0f;
  const auto rule = make_optimizer({}, small.parameters.layout());
  rule->update(small.parameters, 0.1, 1.0, Execution{});
  for (Index i = 0; i < small.parameters.layout().size(); ++i) {
    if (i != 0 && i != small.parameters.layout().entries()[1].offset) {
      EXPECT_EQ(small.parameters.values()[i], 0.0f) << i;
    }
  }
}

}  // namespace
}  // namespace penstock::training
