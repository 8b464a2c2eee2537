// Instability of a run: it returns to good states, lowers the rate, warns, gives up with a sentence, and changes
// nothing about a stable run.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "nn/model/model_impl.h"
#include "penstock/cell.h"
#include "penstock/train.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"
#include "toy_data.h"

namespace penstock {
namespace {

using test::CopyTask;
using test::steps;
using test::SumTask;
using test::weights;
using testing::AllOf;
using testing::HasSubstr;

std::span<float> parameter(Model& model, const std::string& name) {
  auto& parameters = *model.impl().parameters;
  return parameters.value(*parameters.layout().find(name));
}

/// Collects the warnings of a run.
struct Warnings {
  std::vector<std::string> texts;

  TrainCallbacks callbacks() {
    TrainCallbacks callbacks;
    callbacks.progress = [this](const Progress& progress) {
      if (!progress.warning.empty()) texts.push_back(progress.warning.text());
    };
    return callbacks;
  }
};

void poison(Example& example) {
  for (float& value : example.features) value *= 1e4f;
  for (float& value : example.targets) value *= 1e4f;
}

TEST(Guard, AStableRunHasTheSameBitsWithAndWithoutIt) {
  for (const char* const cell : {"lstm", "mingru"}) {
    for (const Optimizer optimizer : {Optimizer::adamw, Optimizer::sgd}) {
      const auto trained = [&](Index rollbacks) {
        CopyTask data;
        Model model({.cell = cell, .width = 8, .blocks = 2, .dropout = 0.1}, data.description(), 1);
        TrainOptions options = steps(250);
        options.optimizer = optimizer;
        options.rollbacks = rollbacks;
        options.validate_steps = 20;
        options.keep_best = true;
        const TrainResult result = train(model, data, options);
        EXPECT_EQ(result.last.rollbacks, 0);
        EXPECT_EQ(result.gave_up, "");
        return weights(model);
      };
      EXPECT_EQ(trained(0), trained(10)) << cell;
    }
  }
}

TEST(Guard, PassesOverAPoisonedBatch) {
  const auto trained = [](bool poisoned, Index rollbacks) {
    SumTask data;
    data.spoil = [&](Index batch, Example& example) {
      if (batch == 150 && poisoned) poison(example);
    };
    Model model({.cell = "gru", .width = 16, .blocks = 1}, data.description(), 1);
    TrainOptions options = steps(400);
    options.rollbacks = rollbacks;
    options.clip = 0.0;
    options.optimizer = Optimizer::sgd;
    Warnings warnings;
    const TrainResult result = train(model, data, options, warnings.callbacks());
    EXPECT_EQ(result.gave_up, "");
    EXPECT_EQ(result.last.rollbacks, poisoned && rollbacks > 0 ? 1 : 0);
    if (poisoned && rollbacks > 0) {
      EXPECT_EQ(warnings.texts.size(), 1u);
      EXPECT_THAT(warnings.texts.at(0), AllOf(HasSubstr("step 151: the loss of a batch is"),
                                              HasSubstr("returns to its state after step 100 and passes over the batch "
                                                        "(1 of 10)")));
    }
    return result.validation->loss;
  };
  EXPECT_LT(trained(true, 10), 2.0 * trained(false, 10));
  EXPECT_THROW(trained(true, 0), Error) << "the batch must do harm, or the test shows nothing";
}

TEST(Guard, ReturnsToTheWeightsOfTheGoodState) {
  SumTask data;
  data.spoil = [](Index batch, Example& example) {
    if (batch == 115) poison(example);
  };
  Model model({.cell = "gru", .width = 8, .blocks = 1}, data.description(), 1);
  std::vector<float> after_100, after_rollback;
  TrainCallbacks callbacks;
  callbacks.progress = [&](const Progress& progress) {
    if (progress.step == 100) after_100 = weights(model);
    if (progress.rollbacks == 1 && after_rollback.empty()) after_rollback = weights(model);
  };
  train(model, data, steps(130), callbacks);
  ASSERT_FALSE(after_rollback.empty());
  EXPECT_EQ(after_rollback, after_100);
}

TEST(Guard, ReturnsToTheAverageOfTheGoodState) {
  SumTask data;
  data.spoil = [](Index batch, Example& example) {
    if (batch == 115) poison(example);
  };
  Model model({.cell = "gru", .width = 8, .blocks = 1}, data.description(), 1);
  TrainOptions options = steps(130);
  options.average = 0.95;
  options.validate_steps = 4;  // a validation follows the return of step 116
  std::map<Index, double> losses;
  TrainCallbacks callbacks;
  callbacks.validation = [&](const Progress& progress, const Evaluation& evaluation) {
    losses[progress.step] = evaluation.loss;
  };
  EXPECT_EQ(train(model, data, options, callbacks).last.rollbacks, 1);
  EXPECT_NE(losses.at(112), losses.at(100));
  EXPECT_EQ(losses.at(116), losses.at(100));
}

TEST(Guard, ARateOf10EndsInASentenceWithAGoodModel) {
  SumTask data;
  Model model({.cell = "gru", .width = 16, .blocks = 1}, data.description(), 1);
  TrainOptions options = steps(100000);
  options.learning_rate = 10.0;
  options.weight_decay = 0.0;
  options.optimizer = Optimizer::sgd;
  options.clip = 0.0;
  options.rollbacks = 3;
  options.warmup = 0.0;
  const double untrained = evaluate(model, data, options).loss;
  Warnings warnings;
  const TrainResult result = train(model, data, options, warnings.callbacks());
  EXPECT_LT(result.last.step, 2000) << "the run must end";
  EXPECT_THAT(result.gave_up.text(), AllOf(HasSubstr("training is unstable: at step"), HasSubstr("after 3 rollbacks"),
                                           HasSubstr("the option 'clip=1'")));
  EXPECT_LT(result.validation->loss, 1.5 * untrained);
  EXPECT_EQ(result.last.rollbacks, 3);
}

TEST(Guard, ALoweredRateComesBack) {
  SumTask data;
  Model model({.cell = "gru", .width = 16, .blocks = 1}, data.description(), 1);
  data.spoil = [](Index batch, Example& example) {
    if (batch == 120 || batch == 150) poison(example);  // the second soon after the first
  };
  TrainOptions options = steps(1000);
  options.warmup = 0.0;
  options.final_rate = 1.0;
  std::vector<double> rates;
  TrainCallbacks callbacks;
  callbacks.progress = [&](const Progress& progress) {
    if (progress.warning.empty()) rates.push_back(progress.learning_rate);
  };
  const TrainResult result = train(model, data, options, callbacks);
  EXPECT_EQ(result.last.rollbacks, 2);
  EXPECT_DOUBLE_EQ(rates.at(100), 0.01);
  EXPECT_DOUBLE_EQ(rates.at(130), 0.01) << "one bad batch says nothing about the rate";
  EXPECT_DOUBLE_EQ(rates.at(160), 0.0025);
  EXPECT_DOUBLE_EQ(rates.at(380), 0.005);
  EXPECT_DOUBLE_EQ(rates.back(), 0.01);
}

TEST(Guard, ManySkipsInARowReturnToAGoodState) {
  CopyTask data;
  Model model({.cell = "mingru", .width = 8}, data.description(), 1);
  // Weights that overflow on every batch: only an earlier state helps.
  data.spoil = [&](Index batch, Example&) {
    if (batch == 110) model.impl().parameters->values()[3] = std::numeric_limits<float>::quiet_NaN();
  };
  Warnings warnings;
  const TrainResult result = train(model, data, steps(150), warnings.callbacks());
  EXPECT_EQ(result.last.skipped, 3);
  EXPECT_EQ(result.last.rollbacks, 1);
  EXPECT_THAT(warnings.texts.back(), AllOf(HasSubstr("3 steps in a row were not finite"), HasSubstr("after step 100"),
                                           HasSubstr("with a learning rate of at most 0.0025")));
  EXPECT_TRUE(std::isfinite(result.validation->loss));
}

TEST(Guard, WarnsOfAGradientThatExplodesBehindItsClipping) {
  SumTask data;
  Model model({.cell = "elman", .width = 64, .blocks = 1, .end_norms = false}, data.description(), 1);
  for (float& weight : parameter(model, "blocks.0.recurrent.weight_hh")) weight *= 3.0f;
  TrainOptions options = steps(60);
  options.length = 400;
  options.learning_rate = 1e-6;
  Warnings warnings;
  train(model, data, options, warnings.callbacks());
  ASSERT_EQ(warnings.texts.size(), 1u) << "it is said once";
  EXPECT_THAT(warnings.texts[0], AllOf(HasSubstr("the gradient explodes: its norm is"),
                                       HasSubstr("before clipping to 1"), HasSubstr("the option 'norms=all'")));
}

TEST(Guard, WarnsOfSaturatedOutputs) {
  CopyTask data;
  Model model({.cell = "elman", .width = 8, .blocks = 1}, data.description(), 1);
  std::ranges::fill(parameter(model, "blocks.0.recurrent.bias_ih"), 50.0f);
  Warnings warnings;
  train(model, data, steps(60), warnings.callbacks());
  EXPECT_THAT(warnings.texts, testing::Contains(AllOf(HasSubstr("100 % of the recurrent outputs are saturated"),
                                                      HasSubstr("the option 'cell=gru'"))));
}

TEST(Guard, LargeOutputsOfACellWithoutBoundsAreNotSaturated) {
  CopyTask data;
  Model model({.cell = "mingru", .width = 8, .blocks = 1}, data.description(), 1);
  std::ranges::fill(parameter(model, "blocks.0.recurrent.bias_ih"), 50.0f);
  Warnings warnings;
  const TrainResult result = train(model, data, steps(60), warnings.callbacks());
  EXPECT_GT(result.last.saturated, 0.9);
  EXPECT_THAT(warnings.texts, testing::Not(testing::Contains(HasSubstr("saturated"))));
}

TEST(Guard, WarnsOfAGradientThatVanishesInAChainOfSigmoids) {
  define_cell({.name = "sigmoid-chain", .description = "A chain of sigmoids"}, [](const CellSymbols& symbols) {
    CellValue x = symbols.wx[0] + symbols.rh[0];
    for (int i = 0; i < 12; ++i) x = sigmoid(x);
    return std::vector<CellValue>{x};
  });
  CopyTask data;
  Model model({.cell = "sigmoid-chain", .width = 8, .blocks = 1}, data.description(), 1);
  Warnings warnings;
  train(model, data, steps(1), warnings.callbacks());
  ASSERT_EQ(warnings.texts.size(), 1u);
  EXPECT_THAT(warnings.texts[0], AllOf(HasSubstr("the gradient vanishes"), HasSubstr("try a cell with gates")));
}

TEST(Guard, AResumedRunRemembers) {
  const test::TemporaryFolder folder;
  const auto spoil = [](CopyTask& data, Model& model) {
    data.spoil = [&](Index batch, Example&) {
      if (batch == 205) {
        for (float& value : model.impl().parameters->values()) value *= 1e6f;
      }
    };
  };
  const ModelSpec spec{.cell = "lstm", .width = 8, .blocks = 1, .end_norms = false};
  const auto options = [&](const std::string& checkpoint) {
    TrainOptions result = steps(320);
    result.checkpoint_path = checkpoint;
    return result;
  };
  CopyTask whole_data;
  Model whole(spec, whole_data.description(), 1);
  spoil(whole_data, whole);
  const TrainResult expected = train(whole, whole_data, options(""));
  EXPECT_EQ(expected.last.rollbacks, 1);
  // Between the state of step 200 and its confirmation, before and after the trouble, and with a lowered rate.
  for (const Index stop : {150, 203, 215, 231}) {
    const std::string path = folder.path(std::to_string(stop));
    CopyTask data;
    Model model(spec, data.description(), 1);
    spoil(data, model);
    TrainCallbacks callbacks;
    callbacks.stop = [left = stop]() mutable { return --left == 0; };
    EXPECT_TRUE(train(model, data, options(path), callbacks).interrupted);
    CopyTask rest_data;
    Model rest(spec, rest_data.description(), 2);
    spoil(rest_data, rest);
    const TrainResult result = train(rest, rest_data, options(path), {}, true);
    EXPECT_EQ(result.last.rollbacks, 1) << stop;
    EXPECT_EQ(weights(rest), weights(whole)) << stop;
  }
}

TEST(Guard, RefusesBadOptions) {
  CopyTask data;
  Model model({.width = 4}, data.description());
  TrainOptions options = steps(1);
  options.rollbacks = -1;
  test::expect_error(ErrorCode::invalid_argument, "rollbacks must be at least 0, not -1",
                     [&] { train(model, data, options); });
}

}  // namespace
}  // namespace penstock
