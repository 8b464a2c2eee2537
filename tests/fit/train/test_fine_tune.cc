// Training that goes on from a model: what its data must be, and what of the model stays.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "nn/model/model_impl.h"
#include "penstock/data/text.h"
#include "penstock/model_file.h"
#include "penstock/train.h"
#include "penstock/train/fine_tune.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace penstock {
namespace {

using test::expect_error;
using test::TemporaryFolder;

std::string table(const std::string& header, int rows, const std::function<std::string(int)>& row) {
  std::string text = header + "\n";
  for (int i = 0; i < rows; ++i) text += row(i) + "\n";
  return text;
}

/// x is a wave and y rises.
std::string waves(int rows, double level, double factor = 1.0) {
  return table("x,y", rows, [&](int i) {
    return fmt::format("{},{}", factor * (level + std::sin(0.7 * i)), factor * (10.0 + 0.1 * i + 0.05 * (i % 3)));
  });
}

/// Sequences of two rows that rise or fall, labelled from `labels` in turns.
std::string labelled(const std::vector<std::string>& labels) {
  return table("sequence,label,x", 40, [&](int i) {
    const std::size_t sequence = static_cast<std::size_t>(i) / 2;
    return fmt::format("s{},{},{}", sequence, labels[sequence % labels.size()], (i % 2) * (sequence % 2 ? 1 : -1));
  });
}

std::vector<float> outputs(const Model& model, Index steps) {
  std::vector<float> features(static_cast<std::size_t>(steps * model.data().input_size()));
  for (std::size_t i = 0; i < features.size(); ++i) features[i] = std::sin(static_cast<float>(i));
  std::vector<float> result(static_cast<std::size_t>(steps * model.data().output_size()));
  ModelState state = model.state(1);
  model.forward(1, steps, features, result, state);
  return result;
}

Model small_model(const Dataset& data, bool from_last = false) {
  ModelSpec spec{.cell = "gru", .width = 8, .blocks = 1, .from_last = from_last};
  use_linear_forecast(spec, data);
  Model model(spec, data.description(), 3);
  fit_autoregression(model, data);
  return model;
}

TrainOptions quick(Index steps) {
  TrainOptions options;
  options.max_steps = steps;
  options.execution.threads = 1;
  return options;
}

TEST(FineTune, OtherRowsAreReadAsTheModelReadsThem) {
  const TemporaryFolder folder;
  const auto first = open_series(folder.write("a.csv", waves(100, 5.0)), {.targets = {"x"}, .horizon = 3});
  const Model origin = small_model(*first);
  // Other columns and another order, and another level: columns, scaling and horizon are the model's all the same.
  const std::string other = table("z,y,x", 60, [](int i) { return fmt::format("{},{},{}", i % 7, 12 + i, 9 + i % 3); });
  const auto second = open_series({folder.write("b.csv", other)}, {.horizon = 7}, &origin.data());
  const DataDescription &was = origin.data(), &is = second->description();
  ASSERT_EQ(is.inputs.size(), 2u);
  EXPECT_EQ(is.inputs[0].name, "x");
  EXPECT_EQ(is.series.horizon, 3);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(is.inputs[i].mean, was.inputs[i].mean);
    EXPECT_EQ(is.inputs[i].scale, was.inputs[i].scale);
  }
  Example example;
  second->next(1, 4, example);
  for (std::size_t t = 0; t < 4; ++t) {
    EXPECT_NEAR(static_cast<double>(example.features[2 * t]), was.inputs[0].normal(9.0 + static_cast<double>(t % 3)),
                1e-5);
  }
  const Model model = continue_from(origin, *second, 0.25);
  EXPECT_EQ(model.spec().dropout, 0.25);
  EXPECT_EQ(outputs(model, 20), outputs(origin, 20)) << "the same weights";
}

TEST(FineTune, DatesStayInputs) {
  const TemporaryFolder folder;
  const auto monthly = [](int rows) {
    return table("when,x", rows, [](int i) {
      return fmt::format("{}-{:02}-01,{}", 1950 + i / 12, 1 + i % 12, i % 12 / 6 * 9 + i % 5);
    });
  };
  const SeriesOptions options{.calendar = {.read = true}, .irregular = Irregular::automatic};
  const auto first = open_series(folder.write("a.csv", monthly(60)), options);
  ASSERT_EQ(first->description().inputs.size(), 3u) << "x, and the day of the year as sine and cosine";
  const Model origin = small_model(*first);
  // A year of further rows is less than a cycle needs by itself.
  const auto second = open_series({folder.write("b.csv", monthly(12))}, options, &origin.data());
  const Model model = continue_from(origin, *second, 0.0);
  EXPECT_EQ(model.data().inputs.size(), 3u);
  const auto undated = open_series(folder.write("c.csv", waves(90, 6.0)), {});
  expect_error(ErrorCode::incompatible,
               "data.inputs has 3 entries in the model to go on from and 2 entries in the dataset",
               [&] { continue_from(origin, *undated, 0.0); });
}

TEST(FineTune, AnotherUnitIsRefused) {
  const TemporaryFolder folder;
  const auto first = open_series(folder.write("a.csv", waves(100, 5.0)), {});
  const auto open = [&](const std::string& text) {
    open_series({folder.write("b.csv", text)}, {}, &first->description());
  };
  open(waves(100, 5.0, 20.0));  // grown, but what a series may do
  expect_error(ErrorCode::incompatible,
               "column \"x\" has mean 5006 and spread 708.2, the data of the model had 5.006 and 0.7082",
               [&] { open(waves(100, 5.0, 1000.0)); });
  expect_error(ErrorCode::incompatible, "it must be in the same unit", [&] { open(waves(100, 278.15)); });
  expect_error(ErrorCode::invalid_argument, "the model's inputs: ", [&] { open("x,z\n1,2\n2,3\n3,4\n4,5\n5,6\n"); });
}

TEST(FineTune, DataOfAnotherTaskAreRefused) {
  const TemporaryFolder folder;
  const auto series = open_series(folder.write("a.csv", waves(100, 5.0)), {});
  const auto labels = open_labelled(folder.write("l.csv", labelled({"a", "b"})), {});
  const auto text = open_text(folder.write("t.txt", std::string(500, 'x')), {});
  expect_error(ErrorCode::incompatible, "the model is for series, not for labelled sequences",
               [&] { open_labelled({folder.path("l.csv")}, {}, &series->description()); });
  expect_error(ErrorCode::incompatible, "the model is for texts, not for series",
               [&] { open_series({folder.path("a.csv")}, {}, &text->description()); });
  const Model origin = small_model(*labels);
  expect_error(ErrorCode::incompatible, "the data are not those of the model: data.classes is [\"a\",\"b\"]",
               [&] { continue_from(origin, *text, 0.0); });
  const auto unscaled = open_series(folder.write("b.csv", waves(90, 6.0)), {});
  const Model forecaster = small_model(*series);
  expect_error(ErrorCode::incompatible, "mean", [&] { continue_from(forecaster, *unscaled, 0.0); });
}

TEST(FineTune, LabelsKeepTheirNumbers) {
  const TemporaryFolder folder;
  const auto first = open_labelled(folder.write("a.csv", labelled({"low", "mid", "high"})), {});
  const Model origin = small_model(*first);
  const auto second = open_labelled({folder.write("b.csv", labelled({"mid", "low"}))}, {}, &origin.data());
  EXPECT_EQ(second->description().labels.classes, origin.data().labels.classes);
  Example example;
  second->next(16, 2, example);
  for (Index b = 0; b < 16; ++b) {
    const double x = origin.data().inputs[0].raw(static_cast<double>(example.features[2 * b + 1]));
    const std::string& label = origin.data().labels.classes[static_cast<std::size_t>(example.labels[2 * b + 1])];
    EXPECT_EQ(label, x > 0.0 ? "low" : "mid");
  }
  const Model model = continue_from(origin, *second, 0.0);
  EXPECT_EQ(outputs(model, 5), outputs(origin, 5));
  expect_error(ErrorCode::incompatible, "the model does not know label \"new\", its labels are \"high, low, mid\"",
               [&] {
                 open_labelled({folder.write("c.csv", labelled({"mid", "new"}))}, {}, &origin.data());
               });
}

TEST(FineTune, TheLinearForecastIsThatOfTheNewRows) {
  const TemporaryFolder folder;
  const SeriesOptions options{.inputs = {"x"}, .horizon = 2, .from_last = true, .autoregression = true};
  const auto first = open_series({folder.write("a.csv", waves(200, 5.0))}, options);
  const Model origin = small_model(*first, true);
  // Another season, so that other weights and another number of lags are right.
  const std::string slow =
      table("x", 300, [](int i) { return fmt::format("{}", 5.0 + std::sin(0.21 * i) + 0.1 * (i % 5)); });
  const auto second = open_series({folder.write("b.csv", slow)}, options, &origin.data());
  const Model model = continue_from(origin, *second, 0.0);
  EXPECT_EQ(model.spec().branch_fields().lags, linear_forecast(*second)->lags);
  EXPECT_NE(model.spec().branch_fields().lags, origin.spec().branch_fields().lags)
      << "the test needs two numbers of lags";
  std::size_t layers = 0;
  for (const nn::ParameterEntry& entry : model.impl().parameters->layout().entries()) {
    const auto values = model.impl().parameters->value(entry);
    if (entry.name == "autoregression.weight") {
      EXPECT_TRUE(std::ranges::equal(values, linear_forecast(*second)->weights));
    }
    if (entry.name.starts_with("autoregression.")) continue;
    const auto& others = origin.impl().parameters->layout().entries();
    const auto same = std::ranges::find(others, entry.name, &nn::ParameterEntry::name);
    ASSERT_NE(same, others.end()) << entry.name;
    EXPECT_TRUE(std::ranges::equal(values, origin.impl().parameters->value(*same))) << entry.name;
    ++layers;
  }
  EXPECT_GT(layers, 4u);
}

TEST(FineTune, TheOriginStaysTheBestUntilSomethingIsBetter) {
  const TemporaryFolder folder;
  const auto data = open_labelled(folder.write("a.csv", labelled({"a", "b"})), {});
  Model origin = small_model(*data);
  TrainOptions options = quick(60);
  options.learning_rate = 0.02;
  options.validate_steps = 10;
  options.keep_best = true;
  train(origin, *data, options);
  const double before = evaluate(origin, *data, options).loss;
  Model model = continue_from(origin, *data, 0.0);
  options.learning_rate = 1e-30;  // no step changes anything, so that no later weights are better
  options.weight_decay = 0.0;
  options.optimizer = Optimizer::sgd;
  const TrainResult result = train(model, *data, options);
  EXPECT_EQ(result.model_step, 0);
  EXPECT_EQ(result.validation->loss, before);
}

TEST(FineTune, ARunGoesOnFromTheSameOriginOnly) {
  const TemporaryFolder folder;
  const auto data = open_labelled(folder.write("a.csv", labelled({"a", "b"})), {});
  const Model origin = small_model(*data);
  TrainOptions options = quick(4);
  options.checkpoint_path = folder.path("run");
  Model model = continue_from(origin, *data, 0.0);
  train(model, *data, options);
  options.max_steps = 6;
  model = continue_from(origin, *data, 0.0);
  EXPECT_EQ(train(model, *data, options, {}, true).last.step, 6);
  Model other = continue_from(model, *data, 0.0);
  expect_error(ErrorCode::incompatible, "checkpoint of another run: options.origin is",
               [&] { train(other, *data, options, {}, true); });
  Model fresh = small_model(*data);
  expect_error(ErrorCode::incompatible, "checkpoint of another run: options.origin is",
               [&] { train(fresh, *data, options, {}, true); });
}

TEST(FineTune, AnEnsembleIsRefused) {
  const TemporaryFolder folder;
  const auto data = open_labelled(folder.write("a.csv", labelled({"a", "b"})), {});
  std::vector<Model> members;
  for (const std::uint64_t seed : {1, 2}) members.emplace_back(ModelSpec{.width = 8}, data->description(), seed);
  const Model ensemble = Model::combine(members);
  expect_error(ErrorCode::invalid_argument, "must be a single one, not an ensemble of 2",
               [&] { continue_from(ensemble, *data, 0.0); });
}

TEST(FineTune, AFileSaysWhereItComesFrom) {
  const TemporaryFolder folder;
  const auto data = open_labelled(folder.write("a.csv", labelled({"a", "b"})), {});
  const Model model = small_model(*data);
  History history;
  save_model(model, folder.path("n"), history);
  EXPECT_EQ(inspect_model_file(folder.path("n")).history->origin, "");
  history.origin = "first.safetensors, checksum 0123";
  save_model(model, folder.path("m"), history);
  EXPECT_EQ(inspect_model_file(folder.path("m")).history->origin, history.origin);
}

}  // namespace
}  // namespace penstock
