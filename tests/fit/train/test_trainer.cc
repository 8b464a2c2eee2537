// Properties of the training loop: it learns, skips values that are not finite, reports, clips, and stops.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "nn/model/model_impl.h"
#include "penstock/train.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"
#include "toy_data.h"

namespace penstock {
namespace {

using test::CopyTask;
using test::expect_error;
using test::steps;
using test::SumTask;
using test::weights;
using testing::HasSubstr;

std::vector<nlohmann::json> json_lines(const std::string& text) {
  std::vector<nlohmann::json> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

TEST(Train, LearnsToRemember) {
  for (const char* cell : {"mingru", "lstm", "gru"}) {
    CopyTask data;
    Model model({.cell = cell, .width = 32, .blocks = 2, .convolution = 2}, data.description(), 1);
    const double before = evaluate(model, data, steps(1)).loss;
    EXPECT_NEAR(before, std::log(4.0), 0.25) << cell;
    const TrainResult result = train(model, data, steps(200));
    ASSERT_TRUE(result.validation) << cell;
    EXPECT_LT(result.validation->loss, 0.1) << cell;
    EXPECT_GT(result.validation->accuracy, 0.98) << cell;
    EXPECT_NEAR(result.validation->bits_per_step, result.validation->loss / std::log(2.0), 1e-12);
    EXPECT_EQ(result.validation->scored, 2 * 8 * 22);
    EXPECT_FALSE(result.interrupted);
  }
}

TEST(Train, LearnsFromNumbersWithEveryLossAndRule) {
  for (const Loss loss : {Loss::automatic, Loss::mae}) {
    for (const Optimizer optimizer : {Optimizer::adamw, Optimizer::sgd}) {
      SumTask data;
      Model model({.cell = "gru", .width = 16, .blocks = 1}, data.description(), 1);
      TrainOptions options = steps(300);
      options.loss = loss;
      options.optimizer = optimizer;
      options.learning_rate = optimizer == Optimizer::sgd ? 0.05 : 0.01;
      const double before = evaluate(model, data, options).loss;
      const TrainResult result = train(model, data, options);
      EXPECT_LT(result.validation->loss, 0.35 * before);
      EXPECT_EQ(result.validation->accuracy, 0.0);
    }
  }
}

/// Trains for 6 batches of which number 3 is spoilt, and checks that it changed nothing.
void expect_skipped(const std::string& broken, const std::function<void(Example&)>& spoil) {
  SumTask data;
  Model model({.cell = "lstm", .width = 8, .blocks = 2}, data.description(), 1);
  data.spoil = [&](Index batch, Example& example) {
    if (batch == 3) spoil(example);
  };
  std::vector<std::vector<float>> after;
  std::vector<Progress> reports;
  TrainCallbacks callbacks;
  callbacks.progress = [&](const Progress& progress) {
    reports.push_back(progress);
    after.push_back(weights(model));
  };
  const TrainResult result = train(model, data, steps(6), callbacks);
  ASSERT_EQ(reports.size(), 6u);
  EXPECT_EQ(after[3], after[2]) << "the spoilt batch changed the weights";
  EXPECT_NE(after[4], after[3]);
  EXPECT_EQ(reports[3].warning, "step 4 skipped: the " + broken + " was not finite (1 in a row, giving up after 10)");
  EXPECT_EQ(reports[3].skipped, 1);
  EXPECT_EQ(reports[4].warning, "");
  EXPECT_EQ(result.last.skipped, 1);
  EXPECT_TRUE(std::isfinite(result.validation->loss));

  // Nor may it have left a trace in the optimiser: a run to which the batch was never given ends in the same weights,
  // but for the learning rate, which must not depend on the number of the step here.
  const auto constant = [&](bool spoilt) {
    SumTask fresh;
    Model other({.cell = "lstm", .width = 8, .blocks = 2}, fresh.description(), 1);
    fresh.spoil = [&](Index batch, Example& example) {
      if (batch == 3 && spoilt) spoil(example);
      if (batch == 3 && !spoilt) std::ranges::fill(example.weights, 0.0f);  // nothing scored: no update either
    };
    TrainOptions options = steps(6);
    train(other, fresh, options);
    return weights(other);
  };
  EXPECT_EQ(constant(true), constant(false));
}

TEST(Train, SkipsABatchWhoseInputIsNotFinite) {
  expect_skipped("forward output",
                 [](Example& example) { example.features[37] = std::numeric_limits<float>::quiet_NaN(); });
  expect_skipped("forward output",
                 [](Example& example) { example.features[2] = -std::numeric_limits<float>::infinity(); });
}

TEST(Train, SkipsABatchWhoseTargetIsNotFinite) {
  expect_skipped("loss", [](Example& example) { example.targets[5] = std::numeric_limits<float>::quiet_NaN(); });
  expect_skipped("loss", [](Example& example) { example.targets[5] = std::numeric_limits<float>::infinity(); });
}

TEST(Train, SkipsABatchWhoseGradientOverflows) {
  // The loss of a target of 3e38 is finite in double; the gradient of the weights is beyond float.
  expect_skipped("gradient", [](Example& example) { example.targets[5] = 3e38f; });
}

TEST(Train, TheCarriedStateSurvivesASkippedBatch) {
  // With a NaN in the state the batches that continue it could never be finite again.
  CopyTask data;
  Model model({.cell = "mingru", .width = 8}, data.description(), 1);
  std::vector<std::string> warnings;
  TrainCallbacks callbacks;
  callbacks.progress = [&](const Progress& progress) { warnings.push_back(progress.warning.text()); };
  // A token cannot be NaN, so a weight is, for one batch.
  float kept = 0.0f;
  data.spoil = [&](Index batch, Example&) {
    float& weight = model.impl().parameters->values()[3];
    if (batch == 2) kept = std::exchange(weight, std::numeric_limits<float>::quiet_NaN());
    if (batch == 3) weight = kept;
  };
  train(model, data, steps(5), callbacks);
  EXPECT_THAT(warnings, testing::ElementsAre("", "", HasSubstr("forward output"), "", ""));
}

TEST(Train, GivesUp) {
  SumTask data;
  data.spoil = [](Index batch, Example& example) {
    if (batch >= 2 && batch != 4) example.features[0] = std::numeric_limits<float>::quiet_NaN();
  };
  Model model({.cell = "gru", .width = 8}, data.description(), 1);
  TrainOptions options = steps(100);
  options.give_up_after = 3;
  std::vector<float> last_good;
  std::vector<std::string> warnings;
  TrainCallbacks callbacks;
  callbacks.progress = [&](const Progress& progress) {
    if (progress.warning.empty()) last_good = weights(model);
    warnings.push_back(progress.warning.text());
  };
  expect_error(ErrorCode::numerical,
               "gave up at step 8: the forward output was not finite in 3 steps in a row; lower the option "
               "'learning_rate' or check the data",
               [&] { train(model, data, options, callbacks); });
  EXPECT_EQ(weights(model), last_good);
  EXPECT_THAT(warnings, testing::ElementsAre("", "", HasSubstr("(1 in a row"), HasSubstr("(2 in a row"), "",
                                             HasSubstr("(1 in a row"), HasSubstr("(2 in a row"),
                                             HasSubstr("(3 in a row, giving up after 3)")));
}

TEST(Train, ClipsTheNorm) {
  const auto norms = [](double clip) {
    CopyTask data;
    Model model({.cell = "lstm", .width = 16}, data.description(), 1);
    TrainOptions options = steps(1);
    options.clip = clip;
    // Plain gradient descent, so that the step shows the gradient; a long one, beside which weights are not rounded
    // much.
    options.learning_rate = 1.0;
    options.optimizer = Optimizer::sgd;
    options.weight_decay = 0.0;
    const std::vector<float> before = weights(model);
    const TrainResult result = train(model, data, options);
    const std::vector<float> after = weights(model);
    double squares = 0.0;
    for (std::size_t i = 0; i < before.size(); ++i) {
      const double step = static_cast<double>(before[i]) - static_cast<double>(after[i]);
      squares += step * step;
    }
    const double stepped = std::sqrt(squares) / result.last.learning_rate;
    EXPECT_NEAR(result.last.clipped_norm, stepped, 1e-3 * stepped);  // steps are rounded to floats of weights
    return std::pair(result.last.gradient_norm, result.last.clipped_norm);
  };
  const auto [norm, unclipped] = norms(0.0);
  EXPECT_GT(norm, 0.05);
  EXPECT_EQ(unclipped, norm);
  EXPECT_EQ(norms(0.01), std::pair(norm, 0.01));
  EXPECT_EQ(norms(1e6), std::pair(norm, norm));
}

TEST(Train, ClippingScalesTheUpdate) {
  // With plain SGD and no decay, the weights move by the learning rate times the clipped gradient.
  CopyTask data;
  Model model({.cell = "gru", .width = 8}, data.description(), 1);
  const std::vector<float> before = weights(model);
  TrainOptions options = steps(1);
  options.optimizer = Optimizer::sgd;
  options.weight_decay = 0.0;
  options.clip = 0.001;
  options.learning_rate = 1000.0;
  options.warmup = 0.0;
  options.final_rate = 1.0;
  train(model, data, options);
  const std::vector<float> after = weights(model);
  double squares = 0.0;
  for (std::size_t i = 0; i < before.size(); ++i) squares += std::pow(after[i] - before[i], 2.0);
  EXPECT_NEAR(std::sqrt(squares), 1.0, 1e-3);
}

TEST(Train, TheModelBecomesTheAverageOfItsWeights) {
  const auto trained = [](Index count, double average) {
    CopyTask data;
    Model model({.cell = "gru", .width = 4}, data.description(), 1);
    TrainOptions options = steps(count);
    options.warmup = 0.0, options.final_rate = 1.0, options.average = average;
    if (count > 0) train(model, data, options);
    return weights(model);
  };
  constexpr Index count = 30;
  const std::vector<float> first = trained(0, 0.0);
  std::vector<double> expected(first.begin(), first.end());
  for (Index i = 1; i <= count; ++i) {
    const std::vector<float> now = trained(i, 0.0);
    const double past = std::min(0.7, (1.0 + static_cast<double>(i)) / (10.0 + static_cast<double>(i)));
    for (std::size_t at = 0; at < now.size(); ++at) expected[at] = past * expected[at] + (1.0 - past) * now[at];
  }
  const std::vector<float> average = trained(count, 0.7);
  for (std::size_t at = 0; at < average.size(); ++at) EXPECT_NEAR(average[at], expected[at], 1e-6);
}

TEST(Train, CarriesTheState) {
  // With windows of two steps the label, two steps back, always lies in an earlier window.
  const auto accuracy = [](bool carry) {
    CopyTask data;
    Model model({.cell = "lstm", .width = 32}, data.description(), 1);
    TrainOptions options = steps(300);
    options.length = 2;
    options.batch = 32;
    options.carry_state = carry;
    double reported = 0.0;
    TrainCallbacks callbacks;
    callbacks.progress = [&](const Progress& progress) { reported = progress.accuracy; };
    train(model, data, options, callbacks);
    return reported;
  };
  EXPECT_LT(accuracy(false), 0.5);
  EXPECT_GT(accuracy(true), 0.55);
}

TEST(Train, EveryHundredthOfARunIsKeptHoweverShortItIs) {
  const test::TemporaryFolder folder;
  CopyTask data;
  for (const bool kept : {false, true}) {
    TrainOptions options = steps(150);
    options.log_every = 1e9;
    if (kept) options.metrics_path = folder.path("hundredths.jsonl");
    Model model({.width = 8, .blocks = 1}, data.description());
    int reports = 0;
    TrainCallbacks callbacks;
    callbacks.progress = [&](const Progress&) { ++reports; };
    train(model, data, options, callbacks);
    EXPECT_EQ(reports, kept ? 76 : 2) << "the first step and every second one, or the first and the last";
  }
}

TEST(Train, ReportsAndWritesMetrics) {
  const test::TemporaryFolder folder;
  CopyTask data;
  Model model({.cell = "elman", .width = 8, .blocks = 3}, data.description(), 1);
  TrainOptions options = steps(5);
  options.metrics_path = folder.path("metrics.jsonl");
  options.metrics_note = R"({"model": "elman.safetensors"})";
  options.validate_every = 1e-9;
  std::vector<Progress> reports;
  int validations = 0;
  TrainCallbacks callbacks;
  callbacks.progress = [&](const Progress& progress) { reports.push_back(progress); };
  callbacks.validation = [&](const Progress&, const Evaluation&) { ++validations; };
  const TrainResult result = train(model, data, options, callbacks);
  ASSERT_EQ(reports.size(), 5u);
  EXPECT_EQ(validations, 5);
  EXPECT_DOUBLE_EQ(reports[1].fraction, 0.4);
  EXPECT_EQ(reports[4].fraction, 1.0);
  EXPECT_EQ(reports[4].seconds_left, 0.0);
  const auto positions = static_cast<double>(options.batch * options.length);
  for (const Progress& report : reports) {
    EXPECT_GT(report.steps_per_second, 0.0);
    EXPECT_NEAR(report.positions_per_second / report.steps_per_second, positions, 1e-9 * positions);
  }
  EXPECT_GT(reports[4].first_gradient_ratio, 0.0);
  EXPECT_GE(reports[4].seconds, reports[3].seconds);

  const auto lines = json_lines(folder.read("metrics.jsonl"));
  ASSERT_EQ(lines.size(), 12u);
  EXPECT_EQ(lines[0]["kind"], "run");
  EXPECT_EQ(lines[0]["architecture"]["cell"], "elman");
  EXPECT_EQ(lines[0]["parameters"], model.parameter_count());
  EXPECT_EQ(lines[0]["options"]["batch"], options.batch);
  EXPECT_EQ(lines[0]["model"], "elman.safetensors");
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(lines[2 * i + 1]["kind"], "train");
    EXPECT_EQ(lines[2 * i + 1]["step"], i + 1);
    EXPECT_EQ(lines[2 * i + 1]["loss"], reports[i].loss);
    EXPECT_EQ(lines[2 * i + 1]["gradient_norm"], reports[i].gradient_norm);
    EXPECT_EQ(lines[2 * i + 1]["clipped_norm"], reports[i].clipped_norm);
    EXPECT_EQ(lines[2 * i + 2]["kind"], "validation");
  }
  EXPECT_EQ(lines[11]["kind"], "final");
  EXPECT_EQ(lines[11]["interrupted"], false);
  EXPECT_EQ(lines[11]["model_step"], 5);
  EXPECT_EQ(lines[11]["validation"]["loss"], result.validation->loss);
}

TEST(Train, CountsSaturatedOutputs) {
  const auto saturated = [](float bias) {
    CopyTask data;
    Model model({.cell = "elman", .width = 8, .blocks = 1}, data.description(), 1);
    auto& parameters = *model.impl().parameters;
    for (const auto& entry : parameters.layout().entries()) {
      if (entry.name != "blocks.0.recurrent.bias_ih") continue;
      for (Index i = 0; i < 4; ++i) parameters.value(entry)[i] = bias;
    }
    return train(model, data, steps(1)).last.saturated;
  };
  EXPECT_NEAR(saturated(50.0f), 0.5, 0.1);
  EXPECT_LT(saturated(0.0f), 0.1);
}

TEST(Train, ComparesTheFirstBlocksGradientWithTheLasts) {
  for (const Index blocks : {1, 3}) {
    CopyTask data;
    Model model({.cell = "mingru", .width = 8, .blocks = blocks}, data.description(), 1);
    const std::vector<float> before(model.impl().parameters->values().begin(), model.impl().parameters->values().end());
    TrainOptions options = steps(1);
    options.optimizer = Optimizer::sgd;
    options.momentum = 0.0;
    options.weight_decay = 0.0;
    options.clip = 0.0;
    const TrainResult result = train(model, data, options);
    // A step of plain SGD is the gradient times a number.
    double first = 0.0, last = 0.0;
    bool above = false;
    for (const auto& entry : model.impl().parameters->layout().entries()) {
      above = above || entry.block == 0;
      double squares = 0.0;
      for (Index i = entry.offset; i < entry.offset + entry.size; ++i) {
        const auto at = static_cast<std::size_t>(i);
        squares +=
            std::pow(static_cast<double>(model.impl().parameters->values()[at]) - static_cast<double>(before[at]), 2);
      }
      if (entry.block == 0) first += squares;
      if (blocks > 1 ? entry.block == blocks - 1 : above && entry.block < 0) last += squares;
    }
    ASSERT_GT(last, 0.0);
    EXPECT_NEAR(result.last.first_gradient_ratio, std::sqrt(first / last), 1e-3 * std::sqrt(first / last))
        << blocks << " blocks";
  }
}

TEST(Train, WarnsOfAGradientOfZero) {
  for (const auto& [blocks, norm] : {std::pair(1, "0.0e+00 of the head's; try"), std::pair(2, "0; try")}) {
    CopyTask data;
    Model model({.cell = "elman", .width = 8, .blocks = blocks}, data.description(), 1);
    auto& parameters = *model.impl().parameters;
    for (const auto& entry : parameters.layout().entries()) {
      // A head that passes nothing on and, since nothing reaches it, learns nothing but its bias.
      if (entry.name.starts_with("head.") || entry.name == "norm.weight")
        std::ranges::fill(parameters.value(entry), 0.0f);
    }
    const TrainResult result = train(model, data, steps(1));
    EXPECT_EQ(result.last.first_gradient_ratio, 0.0) << blocks;
    EXPECT_THAT(result.last.warning.text(),
                HasSubstr("the gradient vanishes: in the first block its norm is " + std::string(norm)));
  }
}

TEST(Train, WarnsOfAVanishingGradient) {
  for (const auto& [blocks, compared] : {std::pair(1, "of the head's"), std::pair(2, "of the last")}) {
    CopyTask data;
    Model model({.cell = "elman", .width = 8, .blocks = blocks}, data.description(), 1);
    auto& parameters = *model.impl().parameters;
    for (const auto& entry : parameters.layout().entries()) {
      // Saturate the first block: the derivative of its tanh is zero to the last digit.
      if (entry.name == "blocks.0.recurrent.bias_ih") std::ranges::fill(parameters.value(entry), 30.0f);
    }
    const TrainResult result = train(model, data, steps(1));
    EXPECT_LT(result.last.first_gradient_ratio, 1e-4);
    EXPECT_THAT(result.last.warning.text(), HasSubstr("step 1: the gradient vanishes"));
    EXPECT_THAT(result.last.warning.text(), HasSubstr(compared));
  }
}

TEST(Train, StopsWhenAsked) {
  CopyTask data;
  Model model({.width = 8}, data.description(), 1);
  int polls = 0;
  TrainCallbacks callbacks;
  callbacks.stop = [&] { return ++polls == 4; };
  const TrainResult result = train(model, data, steps(100), callbacks);
  EXPECT_TRUE(result.interrupted);
  EXPECT_EQ(result.last.step, 4);
  EXPECT_FALSE(result.validation);
}

TEST(Train, StopsAtTheFirstLimit) {
  SumTask data;  // one pass has 1000 steps; a batch scores 8 * 23
  Model model({.width = 8}, data.description(), 1);
  TrainOptions options = steps(1000);
  options.max_epochs = 2.0;
  EXPECT_EQ(train(model, data, options).last.step, 11);
  options.max_seconds = 1e-9;
  EXPECT_LE(train(model, data, options).last.step, 1);
  options = steps(0);
  EXPECT_NEAR(train(model, data, options).last.epoch, 10.0, 0.2);
}

TEST(Train, ForgetsThePaddingOfARow) {
  // Padding behind a row's length, NaN included, must change nothing.
  const auto trained = [](float padding) {
    SumTask data;
    data.spoil = [&](Index, Example& example) {
      example.lengths.assign(static_cast<std::size_t>(example.rows), example.steps - 5);
      for (Index b = 0; b < example.rows; ++b) {
        for (Index t = example.steps - 5; t < example.steps; ++t) {
          const Index place = b * example.steps + t;
          example.features[2 * place] = example.features[2 * place + 1] = example.targets[place] = padding;
          example.weights[place] = 0.0f;
        }
      }
    };
    Model model({.cell = "gru", .width = 8, .convolution = 3, .feed_forward = 1.0}, data.description(), 1);
    train(model, data, steps(3));
    return weights(model);
  };
  EXPECT_EQ(trained(0.0f), trained(std::numeric_limits<float>::quiet_NaN()));
}

TEST(Train, RefusesBadOptions) {
  CopyTask data;
  Model model({.width = 4}, data.description());
  const auto refused = [&](const std::string& message, auto change) {
    TrainOptions options = steps(1);
    change(options);
    expect_error(ErrorCode::invalid_argument, message, [&] { train(model, data, options); });
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto refused_beyond = [&]<class E>(const char* name, E TrainOptions::*member) {
    const std::size_t count = names_of(E()).size();
    refused(fmt::format("{} must be a value of its enumeration, 0 to {}, not {}", name, count - 1, count),
            [&](TrainOptions& o) { o.*member = static_cast<E>(count); });
  };
  refused_beyond("loss", &TrainOptions::loss);
  refused_beyond("optimizer", &TrainOptions::optimizer);
  refused_beyond("schedule", &TrainOptions::schedule);
  refused("execution.algorithm must be a value of its enumeration",
          [](TrainOptions& o) { o.execution.algorithm = Algorithm{3}; });
  refused("execution.precision must be a value of its enumeration",
          [](TrainOptions& o) { o.execution.precision = Precision{5}; });
  refused("max_steps must be at least 0, not -1", [](TrainOptions& o) { o.max_steps = -1; });
  refused("max_steps or max_seconds must be given", [](TrainOptions& o) { o.max_steps = 0; });
  refused("max_epochs needs data that end", [](TrainOptions& o) { o.max_epochs = 1.0; });
  refused("batch must be at least 1, not 0", [](TrainOptions& o) { o.batch = 0; });
  refused("length must be at least 1, not 0", [](TrainOptions& o) { o.length = 0; });
  refused("learning_rate must be greater than 0, not nan", [&](TrainOptions& o) { o.learning_rate = nan; });
  refused("learning_rate times weight_decay must be below 1, not 2",
          [](TrainOptions& o) { o.learning_rate = 1.0, o.weight_decay = 2.0; });
  refused("beta1 must be at least 0 and below 1, not 1", [](TrainOptions& o) { o.beta1 = 1.0; });
  refused("warmup must be 0 to 1, not 2", [](TrainOptions& o) { o.warmup = 2.0; });
  refused("clip must be at least 0, not -1", [](TrainOptions& o) { o.clip = -1.0; });
  refused("give_up_after must be at least 1, not 0", [](TrainOptions& o) { o.give_up_after = 0; });
  refused("threads must be 0 (all cores) to 1024, not -1", [](TrainOptions& o) { o.execution.threads = -1; });
  refused("loss mse does not fit a task with classes (cross_entropy)", [](TrainOptions& o) { o.loss = Loss::mse; });
  TrainOptions options = steps(1);
  expect_error(ErrorCode::invalid_argument, "checkpoint_path must be given to resume",
               [&] { train(model, data, options, {}, true); });
  options.metrics_path = "/nonexistent/metrics.jsonl";
  expect_error(ErrorCode::io_failure, "/nonexistent/metrics.jsonl: cannot write metrics: No such file",
               [&] { train(model, data, options); });
}

TEST(Train, RefusesOtherData) {
  CopyTask data;
  DataDescription other = data.description();
  other.labels.classes[2] = "x";
  Model model({.width = 4}, other);
  const char* message =
      "the model was made for other data: data.classes[2] is \"x\" in the model and \"c\" in the dataset";
  expect_error(ErrorCode::incompatible, message, [&] { train(model, data, steps(1)); });
  expect_error(ErrorCode::incompatible, message, [&] { evaluate(model, data, steps(1)); });
}

TEST(Train, RefusesADatasetThatBreaksItsPromise) {
  CopyTask data;
  Model model({.width = 4}, data.description());
  data.spoil = [](Index, Example& example) { example.labels.pop_back(); };
  expect_error(ErrorCode::invalid_argument, "dataset: labels must hold 192 values, not 191",
               [&] { train(model, data, steps(1)); });
  data.spoil = [](Index, Example& example) { example.lengths.assign(8, 25); };
  expect_error(ErrorCode::invalid_argument, "dataset: a length must be 0 to 24, not 25",
               [&] { train(model, data, steps(1)); });
}

}  // namespace
}  // namespace penstock
