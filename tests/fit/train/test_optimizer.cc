// Two updates worked out by hand for AdamW and SGD, a hundred by the published rule for the others.

#include "train/optimizer_state.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "support/run_op.h"

namespace penstock::training {
namespace {

/// A matrix of one value, which decays, and a bias of one value, which does not.
nn::ParameterLayout small_layout() {
  nn::ParameterLayout layout;
  layout.add("weight", {1, 1}, true);
  layout.add("bias", {1}, false);
  return layout;
}

/// Its training step from the gradients on.
struct Small {
  explicit Small(const TrainOptions& options)
      : shape(training_shape(options, Loss::mse, 0)),
        moments(options, layout),
        values(static_cast<std::size_t>(layout.size()), 0.0f),
        gradients(values) {
    for (const nn::ParameterEntry& entry : layout.entries()) {
      shape.optimizer.tensors.push_back({entry.offset, entry.size, entry.decay});
    }
  }

  float& value(std::size_t i) { return values[static_cast<std::size_t>(layout.entries()[i].offset)]; }
  float& gradient(std::size_t i) { return gradients[static_cast<std::size_t>(layout.entries()[i].offset)]; }

  /// A batch with one scored position; gradients of a greater norm than `clip` are clipped to that.
  void update(double learning_rate, double clip = 0.0) {
    shape.rules.clip = clip;
    state.learning_rate = learning_rate;
    state.loss.weight = 1.0;
    state.loss.scored = 1;
    state.broken = 0;
    float* const first = moments.slots[0].values.data();
    float* const second = moments.slots.size() > 1 ? moments.slots[1].values.data() : nullptr;
    test::run_op(ops::sum_squares(layout.size()), {}, {}, {gradients.data(), &state});
    test::run_op(ops::decide(shape.rules), {}, {}, {&state, &state});
    test::run_op(ops::optimizer(shape.optimizer), {}, {},
                 {gradients.data(), &state, values.data(), first, second, values.data(), first, second, nullptr});
  }

  nn::ParameterLayout layout = small_layout();
  nn::TrainingShape shape;
  OptimizerState moments;
  std::vector<float> values, gradients;
  StepState state = ops::first_step_state(1.0f);
};

TEST(AdamW, TwoStepsByHand) {
  TrainOptions options;
  options.weight_decay = 0.5;
  options.beta1 = 0.9;
  options.beta2 = 0.99;
  options.epsilon = 1e-8;
  Small small(options);
  small.value(0) = 1.0f;
  small.value(1) = -2.0f;
  // Step 1, rate 0.1: whatever the gradient, m/(1-b1) = g and sqrt(v/(1-b2)) = |g|, so a step of the rate.
  small.gradient(0) = 0.5f;
  small.gradient(1) = -4.0f;
  small.update(0.1);
  EXPECT_NEAR(small.value(0), 1.0 * (1.0 - 0.1 * 0.5) - 0.1, 1e-6);
  EXPECT_NEAR(small.value(1), -2.0 + 0.1, 1e-6);
  // Step 2, rate 0.2, gradients halved by clipping from 2 to 1 and from 1 to 0.5.
  const double before0 = small.value(0), before1 = small.value(1);
  small.gradient(0) = 2.0f;
  small.gradient(1) = 1.0f;
  small.update(0.2, 0.5 * std::sqrt(5.0));
  const double m0 = (0.9 * 0.05 + 0.1 * 1.0) / (1.0 - 0.81);
  const double v0 = (0.99 * 0.0025 + 0.01 * 1.0) / (1.0 - 0.9801);
  EXPECT_NEAR(small.value(0), before0 * (1.0 - 0.2 * 0.5) - 0.2 * m0 / (std::sqrt(v0) + 1e-8), 1e-6);
  const double m1 = (0.9 * -0.4 + 0.1 * 0.5) / (1.0 - 0.81);
  const double v1 = (0.99 * 0.16 + 0.01 * 0.25) / (1.0 - 0.9801);
  EXPECT_NEAR(small.value(1), before1 - 0.2 * m1 / (std::sqrt(v1) + 1e-8), 1e-6);
  EXPECT_EQ(small.state.updates, 2);
  EXPECT_NEAR(small.state.gradient_norm, std::sqrt(5.0), 1e-12);
  EXPECT_NEAR(small.state.clipped_norm, 0.5 * std::sqrt(5.0), 1e-12);
}

TEST(Sgd, TwoStepsByHand) {
  TrainOptions options;
  options.optimizer = Optimizer::sgd;
  options.weight_decay = 0.5;
  options.momentum = 0.8;
  Small small(options);
  small.value(0) = 1.0f;
  small.value(1) = -2.0f;
  small.gradient(0) = 2.0f;
  small.gradient(1) = 3.0f;
  small.update(0.1);
  EXPECT_FLOAT_EQ(small.value(0), 0.95f - 0.2f);
  EXPECT_FLOAT_EQ(small.value(1), -2.3f);
  small.gradient(0) = -1.0f;
  small.gradient(1) = 0.0f;
  small.update(0.1);
  EXPECT_FLOAT_EQ(small.value(0), 0.75f * 0.95f - 0.1f * (0.8f * 2.0f - 1.0f));
  EXPECT_FLOAT_EQ(small.value(1), -2.3f - 0.1f * 2.4f);
}

/// 100 steps of a rule in double: update(value, gradient, moment) with a rate of 0.01.
double after_100_steps(double value, double decay, const std::function<void(double&, double, double&)>& update) {
  double moment = 0.0;
  for (int i = 0; i < 100; ++i) {
    const double gradient = std::sin(3.0 * i + value) + 0.3;
    value *= 1.0 - 0.01 * decay;
    update(value, gradient, moment);
  }
  return value;
}

void expect_100_steps(Optimizer optimizer, const std::function<void(double&, double, double&)>& update) {
  TrainOptions options;
  options.optimizer = optimizer;
  options.weight_decay = 0.1;
  Small small(options);
  const std::vector<double> first = {0.7, -1.3}, decay = {0.1, 0.0};
  for (std::size_t at : {0, 1}) small.value(at) = static_cast<float>(first[at]);
  for (int i = 0; i < 100; ++i) {
    for (std::size_t at : {0, 1}) small.gradient(at) = std::sin(3.0f * static_cast<float>(i) + small.value(at)) + 0.3f;
    small.update(0.01);
  }
  for (std::size_t at : {0, 1}) EXPECT_NEAR(small.value(at), after_100_steps(first[at], decay[at], update), 1e-6);
}

TEST(Lion, ByAlgorithm2OfItsPaper) {
  expect_100_steps(Optimizer::lion, [](double& value, double gradient, double& moment) {
    const double mean = 0.9 * moment + 0.1 * gradient;
    value -= 0.01 * (mean > 0.0 ? 1.0 : mean < 0.0 ? -1.0 : 0.0);
    moment = 0.99 * moment + 0.01 * gradient;
  });
}

TEST(RmsProp, AsPyTorchHasItButForTheDecay) {
  expect_100_steps(Optimizer::rmsprop, [](double& value, double gradient, double& moment) {
    moment = 0.99 * moment + 0.01 * gradient * gradient;
    value -= 0.01 * gradient / (std::sqrt(moment) + 1e-8);
  });
}

/// A matrix in doubles.
struct Doubles {
  std::size_t rows, columns;
  std::vector<double> values = std::vector<double>(rows * columns, 0.0);

  double& at(std::size_t r, std::size_t c) { return values[r * columns + c]; }
  double at(std::size_t r, std::size_t c) const { return values[r * columns + c]; }
};

Doubles turned(const Doubles& a) {
  Doubles result{a.columns, a.rows};
  for (std::size_t r = 0; r < a.rows; ++r) {
    for (std::size_t c = 0; c < a.columns; ++c) result.at(c, r) = a.at(r, c);
  }
  return result;
}

Doubles product(const Doubles& a, const Doubles& b) {
  Doubles result{a.rows, b.columns};
  for (std::size_t r = 0; r < a.rows; ++r) {
    for (std::size_t c = 0; c < b.columns; ++c) {
      for (std::size_t k = 0; k < a.columns; ++k) result.at(r, c) += a.at(r, k) * b.at(k, c);
    }
  }
  return result;
}

/// Jordan's zeropower_via_newtonschulz5(), in doubles.
Doubles zero_power(Doubles x) {
  const bool tall = x.rows > x.columns;
  if (tall) x = turned(x);
  double squares = 0.0;
  for (const double value : x.values) squares += value * value;
  for (double& value : x.values) value /= std::max(std::sqrt(squares), 1e-7);
  for (int i = 0; i < 5; ++i) {
    const Doubles gram = product(x, turned(x));
    Doubles factor = product(gram, gram);
    for (std::size_t j = 0; j < factor.values.size(); ++j) {
      factor.values[j] = -4.7750 * gram.values[j] + 2.0315 * factor.values[j];
    }
    const Doubles rest = product(factor, x);
    for (std::size_t j = 0; j < x.values.size(); ++j) x.values[j] = 3.4445 * x.values[j] + rest.values[j];
  }
  return tall ? turned(x) : x;
}

TEST(Muon, AsItsAuthorAndPyTorchHaveItButInFloats) {
  const std::vector<std::pair<std::size_t, std::size_t>> shapes = {{3, 5}, {7, 4}, {4, 4}, {1, 6}};
  std::vector<ops::StoredMatrix> matrices;
  std::vector<Doubles> expected, momenta;
  Index size = 0;
  for (const auto& [rows, columns] : shapes) {
    matrices.push_back({size, static_cast<Index>(rows), static_cast<Index>(columns), expected.size() != 1});
    size += matrices.back().rows * matrices.back().columns;
    expected.push_back({rows, columns});
    momenta.push_back({rows, columns});
    for (std::size_t j = 0; j < rows * columns; ++j) expected.back().values[j] = std::cos(static_cast<double>(j));
  }
  std::vector<float> values, momentum(static_cast<std::size_t>(size), 0.0f), gradients(momentum);
  for (const Doubles& each : expected) values.insert(values.end(), each.values.begin(), each.values.end());
  StepState state = ops::first_step_state(1.0f);
  state.apply = 1;
  state.gradient_factor = 0.5f;
  state.learning_rate = 0.01;
  state.decay_factor = 1.0f - 0.01f * 0.1f;
  for (int step = 0; step < 100; ++step) {
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      gradients[i] = std::sin(3.0f * static_cast<float>(step) + static_cast<float>(i * i));
    }
    test::run_op(ops::muon(matrices), {}, {},
                 {gradients.data(), &state, values.data(), momentum.data(), values.data(), momentum.data()});
    for (std::size_t m = 0; m < expected.size(); ++m) {
      Doubles update = expected[m];
      for (std::size_t j = 0; j < update.values.size(); ++j) {
        const double gradient = 0.5 * static_cast<double>(gradients[static_cast<std::size_t>(matrices[m].offset) + j]);
        momenta[m].values[j] += 0.05 * (gradient - momenta[m].values[j]);
        update.values[j] = gradient + 0.95 * (momenta[m].values[j] - gradient);
      }
      update = zero_power(update);
      const double rate = 0.01 * 0.2 * std::sqrt(static_cast<double>(std::max(update.rows, update.columns)));
      for (std::size_t j = 0; j < update.values.size(); ++j) {
        double& value = expected[m].values[j];
        value = value * (matrices[m].decay ? static_cast<double>(state.decay_factor) : 1.0) - rate * update.values[j];
      }
    }
  }
  for (std::size_t m = 0; m < expected.size(); ++m) {
    for (std::size_t j = 0; j < expected[m].values.size(); ++j) {
      const float got = values[static_cast<std::size_t>(matrices[m].offset) + j];
      EXPECT_NEAR(got, expected[m].values[j], 1e-6) << m << ", " << j;
    }
  }
}

TEST(Optimizer, GapsBetweenTensorsStayZero) {
  Small small({});
  small.gradient(0) = small.gradient(1) = 1.0f;
  small.update(0.1);
  for (Index i = 0; i < small.layout.size(); ++i) {
    const bool gap = i != 0 && i != small.layout.entries()[1].offset;
    EXPECT_EQ(small.values[static_cast<std::size_t>(i)] == 0.0f, gap) << i;
  }
}

TEST(Optimizer, WhatIsNotFiniteChangesNothing) {
  Small small({});
  small.value(0) = 1.0f;
  small.gradient(0) = 2.0f;
  small.update(0.1);
  const std::vector<float> values = small.values, first = small.moments.slots[0].values;
  for (const float bad : {std::nanf(""), INFINITY, 1e30f}) {
    small.gradient(1) = bad;
    small.update(0.1);
    EXPECT_EQ(small.values, values) << bad;
    EXPECT_EQ(small.moments.slots[0].values, first) << bad;
  }
  EXPECT_EQ(small.state.updates, 1);
  EXPECT_EQ(small.state.skipped, 3);
}

}  // namespace
}  // namespace penstock::training
