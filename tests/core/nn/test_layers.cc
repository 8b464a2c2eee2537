// Every layer as a graph: gradients against finite differences, splits of a sequence, lengths, resets and steps. What
// each op computes on a small example by hand: tests/core/ops/test_layer_ops.cc.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "gradient_check.h"
#include "nn/model/gate_bias.h"
#include "nn/model/initialise.h"
#include "nn/program_run.h"
#include "support/tolerance.h"

namespace penstock::nn {
namespace {

using graph::Home;
using test::Ends;
using test::expect_gradient;
using test::ProgramRun;
using test::random_values;
using test::same_bits;

using Values = std::vector<double>;

struct LayerCase {
  std::string name;
  Index inputs;   // channels of x
  Index branch;   // of the other input, or 0
  Index outputs;  // O
  Index states;   // S: its state is [S, B, H]
  test::Build build;
};

std::ostream& operator<<(std::ostream& out, const LayerCase& tested) { return out << tested.name; }

ValueId input(GraphBuilder& builder, Home home, Index width) {
  return builder.external("input", home, graph::Extent::positions, width, builder.target().dtype);
}

/// A layer of one input.
template <class Add>
LayerCase layer(const std::string& name, Index inputs, Index outputs, const Add& add, Index states = 1) {
  return {name, inputs, 0, outputs, states, [=](GraphBuilder& builder) {
            const ValueId x = input(builder, Home::features, inputs);
            return Ends{add(builder, x), {x}};
          }};
}

LayerCase recurrence(const std::string& name, const ops::Recurrence& shape, Index states = 1) {
  return layer(
      name, shape.input, shape.hidden,
      [=](GraphBuilder& builder, ValueId x) { return builder.recurrence("recurrent", x, shape); }, states);
}

LayerCase residual(const std::string& name, Index width, double dropout) {
  return {name, width, width, 2 * width, 1, [=](GraphBuilder& builder) {
            const ValueId x = input(builder, Home::features, width), branch = input(builder, Home::targets, width);
            const GraphBuilder::Sum first = builder.residual_norm("first", x, branch, {dropout, 4});
            // The sum is read again, as in a model, so that two gradients meet in it.
            const GraphBuilder::Sum second = builder.residual_norm("second", first.sum, first.normal, {dropout, 5});
            return Ends{builder.linear("linear", second.normal, 2 * width), {x, branch}};
          }};
}

/// The first norm of a model: what it reads goes on beside it and is added to what comes of it.
LayerCase skip_connection(Index width) {
  return layer("SkipConnection", width, width, [=](GraphBuilder& builder, ValueId x) {
    const GraphBuilder::Sum first = builder.residual_norm("first", x);
    return builder.residual_norm("second", first.sum, builder.linear("linear", first.normal, width)).normal;
  });
}

constexpr Index rows = 3, steps = 5;
const std::vector<Index> lengths = {5, 3, 0};
const std::vector<std::uint8_t> reset = {0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0};

class EveryLayer : public testing::TestWithParam<LayerCase> {
 protected:
  EveryLayer() : plain_(target(false, false), GetParam().build), parameters_(plain_.parameters()) {
    initialise(parameters_->layout(), parameters_->values().data(), 7);
    // Gains of one and biases of zero hide errors.
    for (const ParameterEntry& entry : parameters_->layout().entries()) {
      for (double& value : parameters_->value(entry)) value += 0.3 * random_.normal();
    }
    parameters_->changed();
    x_ = random_values(random_, rows * steps * GetParam().inputs);
    branch_ = random_values(random_, rows * steps * GetParam().branch);
    state_ = random_values(random_, std::ssize(plain_.home(Home::state_in)), 0.5);
  }

  static ops::Target target(bool training, bool masks) {
    CallFlags flags;
    flags.set(CallFlag::lengths, masks).set(CallFlag::reset, masks).set(CallFlag::training, training);
    return {.rows = rows, .steps = steps, .flags = flags, .execution = {.threads = 1, .exact = true}};
  }
  static ops::Target part(Index part_rows, Index part_steps) {
    return {.rows = part_rows, .steps = part_steps, .execution = {.threads = 1, .exact = true}};
  }

  ProgramRun<double> open(const ops::Target& target) const { return {target, GetParam().build, parameters_}; }
  ProgramRun<double> open_whole(bool training, bool masks) const {
    ProgramRun<double> run = open(target(training, masks));
    if (masks) {
      run.call.batch.lengths = lengths.data();
      run.call.batch.reset = reset.data();
    }
    run.call.seed = 9;
    return run;
  }

  /// Returns steps begin..end-1 of row b, or of all rows for b = -1, of a sequence of `width` channels.
  static Values cut(const Values& from, Index width, Index b, Index begin, Index end) {
    Values result;
    for (Index row = b < 0 ? 0 : b; row < (b < 0 ? rows : b + 1); ++row) {
      const auto first = from.begin() + (row * steps + begin) * width;
      result.insert(result.end(), first, first + (end - begin) * width);
    }
    return result;
  }
  Values forward_part(ProgramRun<double>& run, Index b, Index begin, Index end, const Values& state) const {
    run.fill(Home::features, cut(x_, GetParam().inputs, b, begin, end));
    run.fill(Home::targets, cut(branch_, GetParam().branch, b, begin, end));
    run.fill(Home::state_in, state);
    return run.forward();
  }

  /// One row's share of states [S, B, H].
  static Values row_state(const Values& states, Index b) {
    Values result;
    const Index hidden = std::ssize(states) / (GetParam().states * rows);
    for (Index s = 0; s < GetParam().states; ++s) {
      const auto first = states.begin() + (s * rows + b) * hidden;
      result.insert(result.end(), first, first + hidden);
    }
    return result;
  }

  Values random_gradient(bool masks) {
    const Index width = GetParam().outputs;
    Values weight = random_values(random_, rows * steps * width);
    for (Index b = 0; b < rows && masks; ++b) {
      std::fill(weight.begin() + (b * steps + lengths[b]) * width, weight.begin() + (b + 1) * steps * width, 0.0);
    }
    return weight;
  }

  void check_gradients(bool masks) {
    ProgramRun<double> run = open_whole(true, masks);
    const Values weight = random_gradient(masks);  // of each output in the loss
    const auto loss = [&] {
      parameters_->changed();
      const Values y = forward_part(run, -1, 0, steps, state_);
      double sum = 0.0;
      for (std::size_t i = 0; i < y.size(); ++i) sum += weight[i] == 0.0 ? 0.0 : weight[i] * y[i];
      return sum;
    };
    loss();
    run.backward(weight);
    const Values gradients = run.values(Home::gradients), dx = run.input_gradient(0);
    const Values dbranch = GetParam().branch > 0 ? run.input_gradient(1) : Values{};
    for (const ParameterEntry& entry : parameters_->layout().entries()) {
      expect_gradient(entry.name, parameters_->value(entry), std::span(gradients).subspan(entry.offset, entry.size),
                      loss);
    }
    expect_gradient("x", x_, dx, loss);
    if (GetParam().branch > 0) expect_gradient("branch", branch_, dbranch, loss);
  }

  Random random_{7};
  ProgramRun<double> plain_;
  std::shared_ptr<Parameters<double>> parameters_;
  Values x_, branch_, state_;
};

TEST_P(EveryLayer, GradientsAgreeWithFiniteDifferences) { check_gradients(false); }
TEST_P(EveryLayer, GradientsAgreeWithLengthsAndResets) { check_gradients(true); }

TEST_P(EveryLayer, GradientsAreThoseOfTheLastPassAlone) {
  ProgramRun<double> run = open_whole(true, false), fresh = open_whole(true, false);
  const Values dy = random_gradient(false), other = random_gradient(false);
  forward_part(run, -1, 0, steps, Values(state_.size(), 0.25));
  run.backward(other);
  forward_part(run, -1, 0, steps, state_);
  // Whatever a buffer of gradients held before, here numbers rather than NaN.
  std::ranges::fill(run.home(Home::gradients), 1e6);
  run.fill(Home::doutputs, dy);
  run.workspace().run(graph::Phase::backward, run.call);
  forward_part(fresh, -1, 0, steps, state_);
  fresh.backward(dy);
  for (const ParameterEntry& entry : parameters_->layout().entries()) {
    const auto got = run.gradient(entry), want = fresh.gradient(entry);
    EXPECT_TRUE(same_bits(Values(got.begin(), got.end()), Values(want.begin(), want.end()))) << entry.name;
  }
  EXPECT_TRUE(same_bits(run.input_gradient(0), fresh.input_gradient(0)));
}

TEST_P(EveryLayer, TheForwardPassOfTrainingIsTheOrdinaryOneButForDropout) {
  ProgramRun<double> training = open_whole(true, true), ordinary = open_whole(false, true);
  const Values y = forward_part(training, -1, 0, steps, state_);
  const bool drops = GetParam().name == "ResidualNormWithDropout";
  EXPECT_NE(same_bits(y, forward_part(ordinary, -1, 0, steps, state_)), drops);
  EXPECT_TRUE(same_bits(training.values(Home::state_out), ordinary.values(Home::state_out)));
}

TEST_P(EveryLayer, AnySplitIsTheWholeToTheBit) {
  const Values whole = forward_part(plain_, -1, 0, steps, state_), state_after = plain_.values(Home::state_out);
  const Index width = GetParam().outputs;
  for (Index middle = 1; middle < steps; ++middle) {
    Values state = state_, joined(whole.size());
    for (const auto& [begin, end] : {std::pair(Index{0}, middle), std::pair(middle, steps)}) {
      ProgramRun<double> run = open(part(rows, end - begin));
      const Values y = forward_part(run, -1, begin, end, state);
      for (Index b = 0; b < rows; ++b) {
        std::copy_n(y.begin() + b * (end - begin) * width, (end - begin) * width,
                    joined.begin() + (b * steps + begin) * width);
      }
      state = run.values(Home::state_out);
    }
    EXPECT_TRUE(same_bits(joined, whole)) << "split at " << middle;
    EXPECT_TRUE(same_bits(state, state_after)) << "split at " << middle;
  }
}

TEST_P(EveryLayer, TheNewStateMayGoWhereTheOldOneLies) {
  for (const bool masks : {false, true}) {
    ProgramRun<double> apart = open_whole(false, masks), in_place = open_whole(false, masks);
    in_place.state_in_place = true;
    EXPECT_TRUE(same_bits(forward_part(in_place, -1, 0, steps, state_), forward_part(apart, -1, 0, steps, state_)));
    EXPECT_TRUE(same_bits(in_place.values(Home::state_in), apart.values(Home::state_out)));
  }
}

TEST_P(EveryLayer, ARowWithLengthAndResetsIsThatRowAlone) {
  const Index width = GetParam().outputs;
  ProgramRun<double> masked = open_whole(false, true), step = open(part(1, 1));
  const Values y = forward_part(masked, -1, 0, steps, state_), state = masked.values(Home::state_out);
  for (Index b = 0; b < rows; ++b) {
    Values alone = row_state(state_, b);  // row 2 has no steps: its state must stay
    for (Index t = 0; t < lengths[b]; ++t) {
      if (reset[b * steps + t]) std::ranges::fill(alone, 0.0);
      EXPECT_TRUE(same_bits(forward_part(step, b, t, t + 1, alone), cut(y, width, b, t, t + 1)))
          << "row " << b << ", step " << t;
      alone = step.values(Home::state_out);
    }
    EXPECT_TRUE(same_bits(alone, row_state(state, b))) << "row " << b;
  }
}

TEST_P(EveryLayer, SteppingIsTheSequenceToTheBit) {
  const Values whole = forward_part(plain_, -1, 0, steps, state_), state_after = plain_.values(Home::state_out);
  ops::Target target = part(1, 1);
  target.flags.set(CallFlag::step);
  for (const bool in_place : {false, true}) {
    ProgramRun<double> step = open(target);
    step.state_in_place = in_place;
    for (Index b = 0; b < rows; ++b) {
      Values state = row_state(state_, b);
      for (Index t = 0; t < steps; ++t) {
        EXPECT_TRUE(same_bits(forward_part(step, b, t, t + 1, state), cut(whole, GetParam().outputs, b, t, t + 1)))
            << "row " << b << ", step " << t;
        state = step.values(in_place ? Home::state_in : Home::state_out);
      }
      EXPECT_TRUE(same_bits(state, row_state(state_after, b))) << "row " << b;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layers, EveryLayer,
    testing::Values(
        layer("Linear", 3, 4, [](GraphBuilder& builder, ValueId x) { return builder.linear("linear", x, 4); }),
        layer("RmsNorm", 11, 11,
              [](GraphBuilder& builder, ValueId x) { return builder.residual_norm("norm", x).normal; }),
        residual("ResidualNorm", 11, 0.0), residual("ResidualNormWithDropout", 11, 0.4), skip_connection(7),
        layer("GatedFeedForward", 4, 4,
              [](GraphBuilder& builder, ValueId x) {
                return builder.linear("down", builder.silu_gate("gate", builder.linear("up", x, 10)), 4);
              }),
        layer("CausalConvolution", 4, 4,
              [](GraphBuilder& builder, ValueId x) { return builder.causal_convolution("convolution", x, 4); }),
        layer("ConvolutionOfOneTap", 4, 4,
              [](GraphBuilder& builder, ValueId x) { return builder.causal_convolution("convolution", x, 1); }),
        layer("ConvolutionLongerThanTheWindow", 2, 2,
              [](GraphBuilder& builder, ValueId x) { return builder.causal_convolution("convolution", x, 9); }),
        recurrence("RecurrenceGru", {.cell = "gru", .input = 3, .hidden = 4, .heads = 2}),
        recurrence("RecurrenceLstm", {.cell = "lstm", .input = 3, .hidden = 5}, 2),
        recurrence("RecurrenceMinGru", {.cell = "mingru", .input = 3, .hidden = 5})),
    [](const auto& tested) { return tested.param.name; });

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

}  // namespace
}  // namespace penstock::nn
