// Every layer: gradients against finite differences, splits of a sequence, lengths, resets, and what each computes on a
// small example by hand.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <memory>
#include <numeric>

#include "gradient_check.h"
#include "nn/causal_convolution.h"
#include "nn/dropout.h"
#include "nn/elementwise.h"
#include "nn/embedding.h"
#include "nn/gate_bias.h"
#include "nn/gated_feed_forward.h"
#include "nn/linear.h"
#include "nn/recurrence.h"
#include "nn/rms_norm.h"
#include "support/expect_error.h"

namespace penstock::nn {
namespace {

using test::expect_error;
using test::expect_gradient;
using test::random_values;

struct LayerCase {
  std::string name;
  std::function<std::unique_ptr<Layer<double>>(ParameterLayout&)> make;
};

std::ostream& operator<<(std::ostream& out, const LayerCase& tested) { return out << tested.name; }

constexpr Index rows = 3, steps = 5;
const std::vector<Index> lengths = {5, 3, 0};
const std::vector<std::uint8_t> reset = {0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0};

class EveryLayer : public testing::TestWithParam<LayerCase> {
 protected:
  EveryLayer() : layer_(GetParam().make(layout_)), parameters_(layout_) {
    layer_->initialise(parameters_.values().data(), random_);
    // Gains of one and biases of zero hide errors.
    for (double& value : parameters_.values()) value += 0.3 * random_.normal();
    parameters_.allocate_gradients();
    layer_->bind(parameters_.values().data(), parameters_.gradients().data());
    x_ = random_values(random_, rows * steps * layer_->inputs());
    state_ = random_values(random_, rows * layer_->state_size(), 0.5);
  }

  Pass pass(bool training, bool masks) {
    Pass pass;
    pass.batch = {.rows = rows, .steps = steps};
    if (masks) {
      pass.batch.lengths = lengths.data();
      pass.batch.reset = reset.data();
    }
    pass.execution = {.threads = 1, .exact = true};
    pass.arena = &arena_;
    pass.training = training;
    return pass;
  }

  std::vector<double> forward(const Pass& pass, const std::vector<double>& x, std::vector<double>& state) {
    std::vector<double> y(static_cast<std::size_t>(pass.rows() * layer_->outputs()), -7.0);
    layer_->bind(parameters_.values().data(), parameters_.gradients().data());
    layer_->forward(pass, x.data(), y.data(), state.data());
    return y;
  }

  void check_gradients(bool masks) {
    const Index outputs = rows * steps * layer_->outputs();
    std::vector<double> weight = random_values(random_, outputs);  // of each output in the loss
    if (masks) {
      for (Index b = 0; b < rows; ++b) {
        for (Index t = lengths[b]; t < steps; ++t) {
          std::fill_n(weight.begin() + (b * steps + t) * layer_->outputs(), layer_->outputs(), 0.0);
        }
      }
    }
    const auto loss = [&] {
      arena_.reset();
      std::vector<double> state = state_;
      const std::vector<double> y = forward(pass(false, masks), x_, state);
      return std::inner_product(y.begin(), y.end(), weight.begin(), 0.0);
    };
    arena_.reset();
    std::vector<double> state = state_;
    std::vector<double> y(static_cast<std::size_t>(outputs));
    std::vector<double> dx(x_.size(), -7.0);
    const Pass training = pass(true, masks);
    layer_->forward(training, x_.data(), y.data(), state.data());
    layer_->backward(training, weight.data(), dx.data());
    const std::vector<double> gradients(parameters_.gradients().begin(), parameters_.gradients().end());
    for (const ParameterEntry& entry : layout_.entries()) {
      expect_gradient(entry.name, parameters_.value(entry), std::span(gradients).subspan(entry.offset, entry.size),
                      loss);
    }
    expect_gradient("x", x_, dx, loss);
  }

  Random random_{7};
  ParameterLayout layout_;
  std::unique_ptr<Layer<double>> layer_;
  Parameters<double> parameters_;
  Arena arena_;
  std::vector<double> x_, state_;
};

TEST_P(EveryLayer, GradientsAgreeWithFiniteDifferences) { check_gradients(false); }
TEST_P(EveryLayer, GradientsAgreeWithLengthsAndResets) { check_gradients(true); }

TEST_P(EveryLayer, BackwardAddsToTheGradients) {
  std::vector<double> state = state_, y(static_cast<std::size_t>(rows * steps * layer_->outputs()));
  const std::vector<double> dy = random_values(random_, rows * steps * layer_->outputs());
  const Pass training = pass(true, false);
  layer_->forward(training, x_.data(), y.data(), state.data());
  layer_->backward(training, dy.data(), nullptr);
  const std::vector<double> once(parameters_.gradients().begin(), parameters_.gradients().end());
  state = state_;
  layer_->forward(training, x_.data(), y.data(), state.data());
  layer_->backward(training, dy.data(), nullptr);
  for (std::size_t i = 0; i < once.size(); ++i) {
    EXPECT_NEAR(parameters_.gradients()[i], 2.0 * once[i], 1e-12 * (1.0 + std::abs(once[i])));
  }
}

TEST_P(EveryLayer, AnySplitIsTheWholeToTheBit) {
  std::vector<double> state = state_;
  const std::vector<double> whole = forward(pass(false, false), x_, state);
  const std::vector<double> state_after = state;
  for (Index cut = 1; cut < steps; ++cut) {
    state = state_;
    std::vector<double> joined(whole.size());
    for (const auto& [begin, end] : {std::pair(Index{0}, cut), std::pair(cut, steps)}) {
      Pass part = pass(false, false);
      part.batch.steps = end - begin;
      std::vector<double> x;
      for (Index b = 0; b < rows; ++b) {
        const auto first = x_.begin() + (b * steps + begin) * layer_->inputs();
        x.insert(x.end(), first, first + (end - begin) * layer_->inputs());
      }
      const std::vector<double> y = forward(part, x, state);
      for (Index b = 0; b < rows; ++b) {
        std::copy_n(y.begin() + b * (end - begin) * layer_->outputs(), (end - begin) * layer_->outputs(),
                    joined.begin() + (b * steps + begin) * layer_->outputs());
      }
    }
    EXPECT_EQ(joined, whole) << "cut at " << cut;
    EXPECT_EQ(state, state_after) << "cut at " << cut;
  }
}

TEST_P(EveryLayer, ARowWithLengthAndResetsIsThatRowAlone) {
  const Index width = layer_->outputs(), inputs = layer_->inputs(), size = layer_->state_size();
  std::vector<double> state = state_;
  const std::vector<double> y = forward(pass(false, true), x_, state);
  for (Index b = 0; b < rows; ++b) {
    // The states of these layers have the rows outermost. Row 2 has no steps: its state must stay.
    std::vector<double> alone(state_.begin() + b * size, state_.begin() + (b + 1) * size);
    for (Index t = 0; t < lengths[b]; ++t) {
      const Index place = b * steps + t;
      if (reset[place]) std::ranges::fill(alone, 0.0);
      Pass step = pass(false, false);
      step.batch = {.rows = 1, .steps = 1};
      const std::vector<double> x(x_.begin() + place * inputs, x_.begin() + (place + 1) * inputs);
      EXPECT_EQ(forward(step, x, alone),
                std::vector<double>(y.begin() + place * width, y.begin() + (place + 1) * width))
          << "row " << b << ", step " << t;
    }
    EXPECT_EQ(alone, std::vector<double>(state.begin() + b * size, state.begin() + (b + 1) * size)) << "row " << b;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layers, EveryLayer,
    testing::Values(
        LayerCase{"Linear",
                  [](ParameterLayout& layout) { return std::make_unique<Linear<double>>(layout, "linear", 3, 4); }},
        LayerCase{"RmsNorm",
                  [](ParameterLayout& layout) { return std::make_unique<RmsNorm<double>>(layout, "norm", 11); }},
        LayerCase{"GatedFeedForward",
                  [](ParameterLayout& layout) {
                    return std::make_unique<GatedFeedForward<double>>(layout, "feed_forward", 4, 5, 1.0);
                  }},
        LayerCase{"CausalConvolution",
                  [](ParameterLayout& layout) {
                    return std::make_unique<CausalConvolution<double>>(layout, "convolution", 4, 4);
                  }},
        LayerCase{"ConvolutionOfOneTap",
                  [](ParameterLayout& layout) {
                    return std::make_unique<CausalConvolution<double>>(layout, "convolution", 4, 1);
                  }},
        LayerCase{"ConvolutionLongerThanTheWindow",
                  [](ParameterLayout& layout) {
                    return std::make_unique<CausalConvolution<double>>(layout, "convolution", 2, 9);
                  }},
        LayerCase{"RecurrenceGru",
                  [](ParameterLayout& layout) {
                    return std::make_unique<Recurrence<double>>(
                        layout, "recurrent", RecurrentLayerSpec{"gru", 3, 4, 2, Bias::single, false});
                  }},
        LayerCase{"RecurrenceMinGru",
                  [](ParameterLayout& layout) {
                    return std::make_unique<Recurrence<double>>(
                        layout, "recurrent", RecurrentLayerSpec{"mingru", 3, 5, 1, Bias::single, false});
                  }}),
    [](const auto& tested) { return tested.param.name; });

TEST(CausalConvolution, TapsReachBackInOrder) {
  ParameterLayout layout;
  CausalConvolution<double> convolution(layout, "c", 1, 3);
  Parameters<double> parameters(layout);
  const std::vector<double> taps = {1.0, 10.0, 100.0};
  std::ranges::copy(taps, parameters.value(layout.entries()[0]).begin());
  parameters.value(layout.entries()[1])[0] = 0.5;
  convolution.bind(parameters.values().data(), nullptr);
  Arena arena;
  Pass pass{.batch = {.rows = 1, .steps = 4}, .execution = {}, .arena = &arena};
  const std::vector<double> x = {1, 2, 3, 4};
  std::vector<double> y(4), state = {7, 8};  // two steps ago, one step ago
  convolution.forward(pass, x.data(), y.data(), state.data());
  EXPECT_THAT(y, testing::ElementsAre(0.5 + 1 + 80 + 700, 0.5 + 2 + 10 + 800, 0.5 + 3 + 20 + 100, 0.5 + 4 + 30 + 200));
  EXPECT_THAT(state, testing::ElementsAre(3, 4));
}

TEST(RmsNorm, DividesByTheRootMeanSquare) {
  ParameterLayout layout;
  RmsNorm<float> norm(layout, "n", 2);
  Parameters<float> parameters(layout);
  Random random;
  norm.initialise(parameters.values().data(), random);
  parameters.values()[1] = 2.0f;
  norm.bind(parameters.values().data(), nullptr);
  Arena arena;
  Pass pass{.batch = {.rows = 1, .steps = 1}, .execution = {}, .arena = &arena};
  const float x[] = {3.0f, 4.0f};
  float y[2];
  norm.forward(pass, x, y, nullptr);
  const double root = std::sqrt(12.5);
  EXPECT_NEAR(y[0], 3.0 / root, 1e-6);
  EXPECT_NEAR(y[1], 8.0 / root, 1e-6);
}

TEST(SiluGate, FloatIsCloseToTheLibraryOverTheWholeRange) {
  std::vector<float> gv;
  for (double x = -100.0; x <= 100.0; x += 0.01) {
    gv.push_back(static_cast<float>(x));
    gv.push_back(1.0f);
  }
  const auto count = static_cast<Index>(gv.size()) / 2;
  std::vector<float> y(static_cast<std::size_t>(count));
  silu_gate(Execution{}, count, 1, gv.data(), y.data());
  for (Index i = 0; i < count; ++i) {
    const double x = gv[static_cast<std::size_t>(2 * i)];
    const double expected = x / (1.0 + std::exp(-x));
    EXPECT_NEAR(y[static_cast<std::size_t>(i)], expected, 5e-7 * std::abs(expected) + 1e-35) << x;
  }
}

TEST(Embedding, LooksUpAddsAndRefuses) {
  ParameterLayout layout;
  Embedding<double> embedding(layout, "e", 3, 2);
  Parameters<double> parameters(layout);
  parameters.allocate_gradients();
  std::iota(parameters.values().begin(), parameters.values().begin() + 6, 0.0);
  embedding.bind(parameters.values().data(), parameters.gradients().data());
  Arena arena;
  const Index length = 2;
  Pass pass{.batch = {.rows = 1, .steps = 3, .lengths = &length}, .execution = {}, .arena = &arena, .training = true};
  std::vector<std::int32_t> tokens = {2, 2, 99};  // the last is padding
  std::vector<double> y(6, -1.0);
  embedding.forward(pass, tokens.data(), y.data());
  EXPECT_THAT(y, testing::ElementsAre(4, 5, 4, 5, 0, 0));
  const std::vector<double> dy = {1, 2, 3, 4, 5, 6};
  embedding.backward(pass, dy.data());
  EXPECT_THAT(std::vector<double>(parameters.gradients().begin(), parameters.gradients().begin() + 6),
              testing::ElementsAre(0, 0, 0, 0, 4, 6));
  tokens[1] = 3;
  expect_error(ErrorCode::invalid_argument, "token 3 at row 0, step 1 is outside 0..2",
               [&] { embedding.forward(pass, tokens.data(), y.data()); });
}

TEST(Dropout, KeepsTheExpectedShareAndTheSameMaskInBackward) {
  const Dropout dropout(0.25, 3);
  constexpr Index n = 100000;
  const std::vector<double> zeros(n, 0.0), ones(n, 1.0);
  std::vector<double> y(n), d(n), other(n);
  Pass pass{.batch = {.rows = 1, .steps = n}, .execution = {}, .training = true, .dropout_seed = 5};
  dropout.add(pass, n, zeros.data(), ones.data(), y.data());
  dropout.backward(pass, n, ones.data(), d.data());
  EXPECT_EQ(y, d);
  const double kept = static_cast<double>(std::ranges::count(y, 1.0 / 0.75));
  EXPECT_EQ(std::ranges::count(y, 0.0) + static_cast<long>(kept), n);
  EXPECT_NEAR(kept / n, 0.75, 0.007);  // five standard deviations
  pass.dropout_seed = 6;
  dropout.backward(pass, n, ones.data(), other.data());
  EXPECT_NE(d, other);
  pass.training = false;
  dropout.add(pass, n, zeros.data(), ones.data(), y.data());
  EXPECT_EQ(y, ones);
}

TEST(GateBias, SpreadsTimeConstantsAndKnowsTheSign) {
  std::vector<double> bias(2 * 5, 0.0);
  add_gate_bias("mingru", 5, bias.data());
  const auto keep = [&](std::size_t i) { return 1.0 / (1.0 + std::exp(bias[i])); };  // 1 - z
  EXPECT_NEAR(1.0 / (1.0 - keep(0)), 1.1, 1e-9);
  EXPECT_NEAR(1.0 / (1.0 - keep(4)), 32.0, 1e-9);
  EXPECT_THAT(std::vector<double>(bias.begin() + 5, bias.end()), testing::Each(0.0));

  std::vector<double> lstm(4 * 2, 0.0);
  add_gate_bias("lstm", 2, lstm.data());
  EXPECT_THAT(lstm, testing::ElementsAre(0, 0, 1, 1, 0, 0, 0, 0));
}

TEST(Arena, RepeatsAndReleases) {
  Arena arena;
  const auto request = [&] {
    arena.reset();
    std::vector<void*> taken = {arena.take<float>(10), arena.take<double>(1 << 20), arena.take<float>(3)};
    return taken;
  };
  const auto first = request();
  const std::size_t capacity = arena.capacity();
  EXPECT_EQ(request(), first);
  EXPECT_EQ(arena.capacity(), capacity);
  for (void* memory : first) EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 64, 0u);
  arena.reset();
  void* inside = nullptr;
  {
    const Arena::Scope scope(arena);
    inside = arena.take<float>(5);
  }
  EXPECT_EQ(arena.take<float>(5), inside);
}

TEST(Elementwise, ColumnSumsDoNotDependOnThreads) {
  Random random(3);
  const std::vector<double> wide = random_values(random, 1000 * 33);
  std::vector<float> x(wide.begin(), wide.end());
  std::vector<std::vector<float>> results;
  for (const int threads : {1, 2, 5}) {
    Arena arena;
    std::vector<float> sums(33, 0.25f);
    add_column_sums(Execution{.threads = threads}, 1000, 33, x.data(), sums.data(), arena);
    results.push_back(sums);
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
  double expected = 0.25;
  for (Index r = 0; r < 1000; ++r) expected += x[static_cast<std::size_t>(r * 33)];
  EXPECT_NEAR(results[0][0], expected, 1e-4);
}

TEST(Elementwise, AllFiniteFindsTheOneBadValue) {
  std::vector<float> x(100000, 1.0f);
  EXPECT_TRUE(all_finite(Execution{}, static_cast<Index>(x.size()), x.data()));
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    x[77777] = bad;
    EXPECT_FALSE(all_finite(Execution{}, static_cast<Index>(x.size()), x.data()));
  }
  x[77777] = std::numeric_limits<float>::max();
  EXPECT_TRUE(all_finite(Execution{}, static_cast<Index>(x.size()), x.data()));
}

}  // namespace
}  // namespace penstock::nn
