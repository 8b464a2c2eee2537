// Filters beside the layers of a model of labelled sequences: that they say what a classifier says of means, however
// the sequences come, that they tell apart what they should, and that the shares are those that the held-out part is
// for.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>

#include "base/random.h"
#include "classify/filter_means.h"
#include "classify/ridge_classifier.h"
#include "nn/closed_form/filter_branch.h"
#include "nn/model/model_impl.h"
#include "penstock/data/tasks.h"
#include "penstock/stop.h"
#include "penstock/train.h"
#include "penstock/train/fine_tune.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace penstock {
namespace {

using test::expect_error;

/// Noise with a bump in it that goes up and then down, or down and then up, wherever it stands: the label. Levels say
/// nothing.
std::string bumps(int count, Index steps, bool equal, int columns = 1) {
  Random random(3);
  std::string text = "sequence,label";
  for (int c = 0; c < columns; ++c) text += fmt::format(",x{}", c);
  text += '\n';
  for (int i = 0; i < count; ++i) {
    const Index length = equal ? steps : steps - random.below(steps / 2);
    const Index at = 4 + random.below(length - 8);
    for (Index t = 0; t < length; ++t) {
      text += fmt::format("{},{}", i, i % 2 == 0 ? "up" : "down");
      for (int c = 0; c < columns; ++c) {
        const double side = t >= at && t < at + 2 ? 1.0 : t >= at + 2 && t < at + 4 ? -1.0 : 0.0;
        text += fmt::format(",{:.4f}", 0.2 * random.normal() + (i % 2 == 0 ? 2.0 : -2.0) * side);
      }
      text += '\n';
    }
  }
  return text;
}

class FitFilters : public testing::Test {
 protected:
  std::unique_ptr<Dataset> open(int count, Index steps, bool equal = true, double held_out = 0.2, int columns = 1) {
    return open_labelled(folder_.write("bumps.csv", bumps(count, steps, equal, columns)),
                         {.validation_fraction = held_out});
  }
  static Model fresh(const Dataset& data) {
    return Model({.cell = "gru", .width = 8, .blocks = 1}, data.description(), 1);
  }
  static double accuracy(const Model& model, const Dataset& data) { return evaluate(model, data, {}).accuracy; }

  static std::span<float> parameter(Model& model, const std::string& name) {
    for (const nn::ParameterEntry& entry : model.impl().parameters->layout().entries()) {
      if (entry.name == name) return model.impl().parameters->value(entry);
    }
    ADD_FAILURE() << name;
    return {};
  }

  test::TemporaryFolder folder_;
};

TEST_F(FitFilters, TellsShapesApartThatLayersHaveNotLearnt) {
  for (const bool equal : {true, false}) {
    const auto data = open(100, 61, equal, 0.3);
    const Model model = fresh(*data);
    FilterShares shares;
    const Model wider = add_filters(model, *data, shares);
    EXPECT_GT(accuracy(wider, *data), 0.9) << equal;
    EXPECT_LT(accuracy(model, *data), 0.8) << "the test needs layers that know little";
    EXPECT_GT(shares.filters, 0.0);
    EXPECT_GT(wider.spec().branch_fields().filters, 0);
    EXPECT_EQ(wider.spec().branch_fields().dilations, 3) << "filters span 9, 17 and 33 of 61 steps, or of half as many";
  }
}

TEST_F(FitFilters, ReadsManyColumns) {
  const auto data = open(60, 21, true, 0.3, 20);
  EXPECT_EQ(nn::filter_channels(data->description()), 16);
  FilterShares shares;
  EXPECT_GT(accuracy(add_filters(fresh(*data), *data, shares), *data), 0.9);
}

TEST_F(FitFilters, FewHeldOutSequencesLeaveFiltersAlone) {
  const auto data = open(50, 31);
  FilterShares shares;
  Model wider = add_filters(fresh(*data), *data, shares);
  EXPECT_EQ(shares.layers, 0.0);
  EXPECT_EQ(shares.filters, 1.0);
  for (const float value : parameter(wider, "head.weight")) EXPECT_EQ(value, 0.0f);
}

TEST_F(FitFilters, AModelSaysWhatTheClassifierSaysOfTheMeans) {
  using training::FilterMeans;
  const auto data = open(50, 31, false);
  const Model model = fit_filters(*data, 4);
  const training::Sequences sequences(*data);
  FilterMeans bank(nn::FilterBranch(model.spec().branch_fields()), model.data(), {});
  bank.take_from(model);
  const auto classifier = bank.fit(bank.means(sequences, training::Sequences::Part::training));
  const training::Means means = bank.means(sequences, training::Sequences::Part::held_out);
  Example example;
  std::vector<double> logits(2);
  double largest = 0.0;
  for (std::size_t i = 0; data->validation(static_cast<Index>(i), 1, 1, example); ++i) {
    std::vector<float> outputs(static_cast<std::size_t>(example.steps * 2));
    ModelState state = model.state(1);
    model.forward(1, example.steps, example.features, outputs, state);
    classifier.logits(means.of(i), logits);
    double size = 0.0;  // of the products that are summed
    for (const double weight : training::weights_of_filters(classifier)) size += std::abs(weight);
    for (std::size_t c = 0; c < 2; ++c) {
      EXPECT_NEAR(static_cast<double>(outputs[outputs.size() - 2 + c]), logits[c], size * 1024.0 * 1.2e-7);
      largest = std::max(largest, std::abs(logits[c]) / (size * 1024.0 * 1.2e-7));
    }
  }
  EXPECT_GT(largest, 10.0) << "the test must see something";
}

TEST_F(FitFilters, ThresholdsOfAPairAreApartByTwo) {
  Model model = fit_filters(*open(50, 31), 4);
  const nn::FilterBranch branch(model.spec().branch_fields());
  const Index filters = branch.filters_of_bank();
  for (Index bank = 0; bank < branch.banks(); ++bank) {
    const auto weight = parameter(model, fmt::format("filters.{}.combine.weight", bank));
    const auto bias = parameter(model, fmt::format("filters.{}.combine.bias", bank));
    const auto width = static_cast<Index>(weight.size()) / (2 * filters);
    for (Index f = 0; f < filters; f += 2) {
      EXPECT_TRUE(std::ranges::equal(weight.subspan(f * width, width), weight.subspan((f + 1) * width, width))) << f;
      EXPECT_NEAR(bias[f] - bias[f + 1], 2.0f, 1e-6f * (2.0f + std::abs(bias[f]))) << f;
    }
  }
}

TEST_F(FitFilters, AModelWithoutLayersSaysTheSame) {
  const auto data = open(50, 31, false);
  ASSERT_TRUE(filters_stand_alone(*data));
  constexpr std::uint64_t seed = 4;
  FilterShares shares;
  const Model beside = add_filters(fresh(*data), *data, shares, seed);
  Model alone = fit_filters(*data, seed);
  EXPECT_EQ(alone.spec().blocks, 0);
  EXPECT_EQ(alone.spec().branch_fields().filters, beside.spec().branch_fields().filters);
  Example example;
  ASSERT_TRUE(data->validation(0, 3, 1, example));
  const auto answers = [&](const Model& model) {
    std::vector<float> outputs(static_cast<std::size_t>(example.rows * example.steps * 2));
    ModelState state = model.state(example.rows);
    model.forward(example.rows, example.steps, example.features, outputs, state);
    return outputs;
  };
  const std::vector<float> expected = answers(beside), said = answers(alone);
  // Layers of no weight add a zero to the first of the sums, which rounds nothing.
  EXPECT_EQ(said, expected);
  const std::string path = folder_.path("alone.safetensors");
  alone.save(path);
  EXPECT_EQ(answers(Model::load(path)), said);
  refit_filters(alone, *data, {.layers = 0.0, .filters = 1.0});
  EXPECT_NE(answers(alone), said) << "what is held out is learnt, too";
  expect_error(ErrorCode::invalid_argument, "the model to go on from must have layers, not filters alone",
               [&] { continue_from(alone, *data, 0.0); });
  expect_error(ErrorCode::invalid_argument, "blocks must be 1 to 1024, not 0",
               [&] { Model({.cell = "gru", .width = 8, .blocks = 0}, data->description(), 1); });
}

TEST_F(FitFilters, ThirtyHeldOutSequencesSayWhatLayersAreWorth) {
  EXPECT_TRUE(filters_stand_alone(*open(145, 17)));   // of which 29 are held out
  EXPECT_FALSE(filters_stand_alone(*open(150, 17)));  // 30
}

TEST_F(FitFilters, SharesMakeNothingWorseThanTheLayersAlone) {
  // Every tenth label is wrong, so that neither is sure of itself for a reason.
  std::string text = "sequence,label,x\n";
  Random random(1);
  for (int i = 0; i < 150; ++i) {
    const bool high = i % 2 == 0;
    const bool says_high = random.uniform() < 0.1 ? !high : high;
    for (int t = 0; t < 9; ++t) text += fmt::format("{},{},{}\n", i, says_high, (high ? 1.0 : -1.0) + random.normal());
  }
  const auto data = open_labelled(folder_.write("levels.csv", text), {.validation_fraction = 0.4});
  Model model = fresh(*data);
  TrainOptions options;
  options.max_steps = 200;
  train(model, *data, options);
  FilterShares shares;
  const Model wider = add_filters(model, *data, shares);
  EXPECT_GT(shares.layers, 0.0);
  EXPECT_LE(evaluate(wider, *data, {}).loss, evaluate(model, *data, {}).loss * 1.001);
}

TEST_F(FitFilters, SaysTheMeanOfWhatItSaysOfEachStep) {
  // By hand: what the filters let pass is summed here over the steps, and the bank's own pooling must come to the same.
  const auto data = open(40, 33);
  FilterShares shares;
  Model wider = add_filters(fresh(*data), *data, shares);
  Example example;
  ASSERT_TRUE(data->validation(0, 1, 1, example));
  const nn::FilterBranch branch(wider.spec().branch_fields());
  const Index steps = example.steps, classes = 2, filters = branch.filters_of_bank(), banks = branch.banks();
  std::vector<float> outputs(static_cast<std::size_t>(steps * classes));
  ModelState state = wider.state(1);
  wider.forward(1, steps, example.features, outputs, state);
  std::vector<double> expected(static_cast<std::size_t>(classes), 0.0);
  const auto bias = parameter(wider, "filters.output.bias");
  for (Index bank = 0; bank < banks; ++bank) {
    const auto combine = parameter(wider, fmt::format("filters.{}.combine.weight", bank));
    const auto threshold = parameter(wider, fmt::format("filters.{}.combine.bias", bank));
    const auto evidence = parameter(wider, fmt::format("filters.{}.evidence.weight", bank));
    for (Index f = 0; f < filters; ++f) {
      double mean = 0.0;
      for (Index t = 0; t < steps; ++t) {
        double sum = static_cast<double>(threshold[f]);
        for (Index tap = 0; tap < nn::filter_taps; ++tap) {
          const auto value = [&](Index at) { return at < 0 ? 0.0 : static_cast<double>(example.features[at]); };
          const Index at = t - tap * nn::dilation_of(bank);
          const double read = nn::reads_differences(bank) ? value(at) - value(at - 1) : value(at);
          sum += static_cast<double>(combine[f * nn::filter_taps + tap]) * read;
        }
        mean += sum / (1.0 + std::exp(-sum)) / static_cast<double>(steps);
      }
      for (Index c = 0; c < classes; ++c) expected[c] += static_cast<double>(evidence[c * filters + f]) * mean;
    }
  }
  for (Index c = 0; c < classes; ++c) {
    // A thousand products in float, and weights of steps that differ by the forgetting, at most steps / 65536.
    double size = 0.0;
    for (Index bank = 0; bank < banks; ++bank) {
      for (const float w : parameter(wider, fmt::format("filters.{}.evidence.weight", bank))) size += std::abs(w);
    }
    const double tolerance = size * (1024.0 * 1.2e-7 + static_cast<double>(steps) / nn::step_weight);
    EXPECT_NEAR(outputs[(steps - 1) * classes + c], expected[c] + static_cast<double>(bias[c]), tolerance) << c;
    EXPECT_LT(tolerance, 0.5 * std::abs(expected[0] - expected[1]) + 0.1) << "the test must see something";
  }
}

TEST_F(FitFilters, AnswersAreThoseOfAnySplitAndAfterAFile) {
  const auto data = open(40, 41, false);
  FilterShares shares;
  const Model wider = add_filters(fresh(*data), *data, shares);
  wider.save(folder_.path("m.safetensors"));
  const Model again = Model::load(folder_.path("m.safetensors"));
  EXPECT_EQ(again.parameter_count(), wider.parameter_count());
  Example example;
  ASSERT_TRUE(data->validation(0, 1, 1, example));
  const Index steps = example.lengths.empty() ? example.steps : example.lengths[0];
  const auto features = std::span<const float>(example.features).first(static_cast<std::size_t>(steps));
  std::vector<float> whole(static_cast<std::size_t>(2 * steps)), parts(whole.size());
  ModelState state = wider.state(1);
  wider.forward(1, steps, features, whole, state);
  state = again.state(1);
  again.forward(1, 7, features.first(7), std::span(parts).first(14), state);
  again.forward(1, steps - 7, features.subspan(7), std::span(parts).subspan(14), state);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    EXPECT_NEAR(parts[i], whole[i], 1e-5 * (1.0 + std::abs(whole[i])) * 8.0) << i;
  }
}

TEST_F(FitFilters, RefittedToAllSequencesItStillTellsThemApart) {
  const auto data = open(30, 31);
  FilterShares shares;
  Model wider = add_filters(fresh(*data), *data, shares);
  const auto weights = [&] {
    const auto values = parameter(wider, "filters.0.evidence.weight");
    return std::vector<float>(values.begin(), values.end());
  };
  const auto taps = [&] {
    const auto values = parameter(wider, "filters.1.combine.weight");
    return std::vector<float>(values.begin(), values.end());
  };
  const auto before = weights(), drawn = taps();
  refit_filters(wider, *data, shares);
  EXPECT_NE(weights(), before);
  EXPECT_EQ(taps(), drawn);
  EXPECT_EQ(accuracy(wider, *data), 1.0) << "of sequences that it was now fitted to";
}

TEST_F(FitFilters, TheSameSeedDrawsTheSameFilters) {
  const auto data = open(30, 31);
  FilterShares shares;
  const auto values = [&](std::uint64_t seed) {
    const Model wider = add_filters(fresh(*data), *data, shares, seed);
    const auto all = wider.impl().parameters->values();
    return std::vector<float>(all.begin(), all.end());
  };
  const auto first = values(5);
  EXPECT_EQ(values(5), first);
  EXPECT_NE(values(6), first);
}

TEST_F(FitFilters, WhatCannotBeIsRefused) {
  const auto data = open(30, 31);
  FilterShares shares;
  Model model = fresh(*data);
  Model wider = add_filters(model, *data, shares);
  expect_error(ErrorCode::invalid_argument, "model must be one without filters, it has ",
               [&] { add_filters(wider, *data, shares); });
  expect_error(ErrorCode::invalid_argument,
               "model must be one without filters, which are fitted once the layers are trained",
               [&] { train(wider, *data, {}); });
  const auto task = open_task("parity");
  expect_error(ErrorCode::invalid_argument, "data must be labelled sequences to fit filters to",
               [&] { add_filters(Model({}, task->description()), *task, shares); });
  ModelSpec spec = wider.spec();
  spec.branch = closed_form_branch({.filters = 4, .dilations = 8});
  expect_error(ErrorCode::invalid_argument, "dilations must be 1 to 7, not 8",
               [&] { Model(spec, data->description()); });
  spec = {.branch = closed_form_branch({.filters = 5, .dilations = 1})};
  expect_error(ErrorCode::invalid_argument, "filters must be even, since half of them read differences, not 5",
               [&] { Model(spec, data->description()); });
  spec.branch = closed_form_branch({.filters = 4, .dilations = 1});
  expect_error(ErrorCode::invalid_argument, "filters must be 0 for a model that does not label sequences of numbers",
               [&] { Model(spec, task->description()); });
  spec = {.from_last = true, .branch = closed_form_branch({.lags = 3, .filters = 4, .dilations = 1})};
  DataDescription series;
  series.task = Task::forecast;
  series.inputs = series.targets = {{.name = "x"}};
  expect_error(ErrorCode::invalid_argument, "filters and dilations must be 0 for a model with lags, not 4 and 1",
               [&] { Model(spec, series); });
  EXPECT_EQ(continue_from(wider, *data, 0.0).spec().branch, nullptr) << "to be fitted anew";
  std::vector<Model> members;
  members.push_back(std::move(wider));
  members.push_back(std::move(model));
  expect_error(ErrorCode::invalid_argument, "members must be without filters", [&] { Model::combine(members); });
}

/// Features [n, F] of which the first two say the class.
struct Features {
  Index count, width;
  std::vector<float> x;
  std::vector<std::int32_t> labels;

  Features(Index n, Index features) : count(n), width(features) {
    Random random(11);
    for (Index i = 0; i < n; ++i) {
      labels.push_back(static_cast<std::int32_t>(i % 3));
      for (Index f = 0; f < features; ++f) {
        const double signal = f < 2 && i % 3 == f ? 3.0 : 0.0;
        x.push_back(static_cast<float>(signal + random.normal()));
      }
    }
  }
};

TEST(RidgeClassifier, PredictsWithMoreRowsOrMoreFeatures) {
  // More rows than features are solved by features, fewer by rows.
  for (const auto& [rows, features] : {std::pair<Index, Index>{300, 7}, {61, 127}, {7, 7}, {8, 1}}) {
    const Features train(rows, features), test(99, features);
    const auto classifier = training::fit_ridge_classifier(train.x, train.labels, features, 3, {});
    std::vector<double> logits(static_cast<std::size_t>(3 * test.count));
    int right = 0;
    for (Index i = 0; i < test.count; ++i) {
      const auto row = std::span(logits).subspan(static_cast<std::size_t>(3 * i), 3);
      classifier.logits(std::span(test.x).subspan(static_cast<std::size_t>(i * features), features), row);
      right += std::ranges::max_element(row) - row.begin() == test.labels[i] ? 1 : 0;
      for (const double logit : row) EXPECT_TRUE(std::isfinite(logit));
    }
    if (rows < 20) continue;
    EXPECT_GT(right, 60) << rows << " x " << features;
    EXPECT_LT(training::cross_entropy(logits, test.labels, 3), std::log(3.0)) << rows;
  }
}

TEST(RidgeClassifier, BothWaysToSolveComeToTheSame) {
  // One row more than features and one fewer: the penalty may be another, by the different error of rows left out, but
  // of rows that are told apart clearly both say nearly the same.
  const Features many(33, 32), few(31, 32);
  const auto by_features = training::fit_ridge_classifier(many.x, many.labels, 32, 3, {});
  const auto by_rows = training::fit_ridge_classifier(few.x, few.labels, 32, 3, {});
  double products = 0.0, left = 0.0, right = 0.0;
  for (std::size_t i = 0; i < by_rows.weights.size(); ++i) {
    products += by_rows.weights[i] * by_features.weights[i];
    left += by_rows.weights[i] * by_rows.weights[i];
    right += by_features.weights[i] * by_features.weights[i];
  }
  EXPECT_GT(products / std::sqrt(left * right), 0.8);
}

TEST(RidgeClassifier, FeaturesThatNeverChangeCountNothing) {
  Features data(30, 4);
  for (Index i = 0; i < data.count; ++i) data.x[i * 4 + 3] = 5.0f;
  const auto classifier = training::fit_ridge_classifier(data.x, data.labels, 4, 3, {});
  for (Index c = 0; c < 3; ++c) EXPECT_EQ(classifier.weights[c * 4 + 3], 0.0);
}

TEST(RidgeClassifier, CrossEntropyIsThatOfTheFormula) {
  const std::vector<double> logits = {1.0, 2.0, -1.0, 0.5};
  const std::vector<std::int32_t> labels = {1, 0};
  const double expected = 0.5 * (std::log(1.0 + std::exp(-1.0)) + std::log(1.0 + std::exp(1.5)));
  EXPECT_NEAR(training::cross_entropy(logits, labels, 2), expected, 1e-12);
}

TEST_F(FitFilters, CanBeInterrupted) {
  const auto data = open(60, 40);
  Model trained = fresh(*data);
  const auto values = trained.impl().parameters->values();
  const std::vector<float> before(values.begin(), values.end());
  const std::atomic<bool> asked = true;
  const Stoppable stoppable(&asked);
  FilterShares shares;
  expect_error(ErrorCode::interrupted, "interrupted", [&] { finish_training(trained, *data); });
  expect_error(ErrorCode::interrupted, "interrupted", [&] { add_filters(trained, *data, shares); });
  expect_error(ErrorCode::interrupted, "interrupted", [&] { fit_filters(*data); });
  EXPECT_TRUE(std::ranges::equal(trained.impl().parameters->values(), before));
}

}  // namespace
}  // namespace penstock
