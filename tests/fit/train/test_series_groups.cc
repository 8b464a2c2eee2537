// Many series in one table: each is split by time and scaled by itself, and one model learns them all.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numbers>
#include <vector>

#include "base/random.h"
#include "forecast/linear/autoregression.h"
#include "nn/model/model_impl.h"
#include "penstock/forecast/score.h"
#include "penstock/train.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace penstock {
namespace {

using test::expect_error;
using test::TemporaryFolder;

/// Rows of shops in turns: a sells 0, 1, 2, ..., b a thousand and a hundred times as much.
std::string two_shops(int rows) {
  std::string text = "shop,x\n";
  for (int i = 0; i < rows; ++i) text += fmt::format("a,{}\nb,{}\n", i, 1000 + 100 * i);
  return text;
}

TEST(SeriesGroups, AreScaledAndSplitOneByOne) {
  const TemporaryFolder folder;
  const auto data = open_series(folder.write("s.csv", two_shops(10)), {.horizon = 2, .group = "shop"});
  const DataDescription& description = data->description();
  EXPECT_EQ(description.series.group_column, "shop");
  ASSERT_EQ(description.series.groups.size(), 2u);
  EXPECT_EQ(description.series.groups[0].name, "a");
  EXPECT_DOUBLE_EQ(description.series.groups[0].inputs[0].mean, 3.5) << "of its first eight rows";
  EXPECT_DOUBLE_EQ(description.series.groups[0].inputs[0].scale, std::sqrt(63.0 / 12.0));
  EXPECT_EQ(description.series.groups[1].name, "b");
  EXPECT_DOUBLE_EQ(description.series.groups[1].targets[0].mean, 1350.0);
  EXPECT_DOUBLE_EQ(description.series.groups[1].targets[0].scale, 100.0 * std::sqrt(63.0 / 12.0));
  ASSERT_EQ(description.inputs.size(), 1u) << "a name of a series is no input";
  EXPECT_EQ(description.inputs[0].mean, 0.0);
  EXPECT_EQ(description.inputs[0].scale, 1.0);
  EXPECT_THAT(data->reading(), testing::Contains("2 series named by shop, of 10 rows"));

  ASSERT_EQ(data->training_steps(), 14);
  Example example;
  data->next(1, 14, example);
  std::vector<std::uint8_t> reset(14, 0);
  reset[7] = 1;
  EXPECT_EQ(example.reset, reset) << "the second series starts anew";
  for (std::size_t t = 0; t < 7; ++t) {
    EXPECT_FLOAT_EQ(example.features[t], static_cast<float>((static_cast<double>(t) - 3.5) / std::sqrt(63.0 / 12.0)));
    EXPECT_FLOAT_EQ(example.features[t], example.features[7 + t]) << "alike by their own sizes";
    EXPECT_EQ(example.weights[2 * t + 1], t < 6 ? 1.0f : 0.0f) << "forecasts end with the training part of the series";
    EXPECT_EQ(example.weights[14 + 2 * t + 1], t < 6 ? 1.0f : 0.0f);
  }
}

// Series are files, which are scaled alike: a value says which row it is of.
TEST(SeriesGroups, EveryHeldOutRowOfEverySeriesIsAskedForOnce) {
  const TemporaryFolder folder;
  Sources files;
  std::vector<int> held_out;
  for (const int rows : {37, 60, 24, 101, 12}) {
    std::string text = "x\n";
    for (int i = 0; i < rows; ++i) {
      text += fmt::format("{}\n", held_out.size());
      held_out.push_back(i >= rows - rows / 5 ? 1 : 0);
    }
    files.push_back(folder.write(fmt::format("{}.csv", files.size()), text));
  }
  for (const bool linear : {false, true}) {
    const auto data = open_series(files, {.from_last = linear, .autoregression = linear});
    const Column &input = data->description().inputs[0], &target = data->description().targets[0];
    const auto raw = [](float value, const Column& column) {
      return std::lround(column.raw(static_cast<double>(value)));
    };
    EXPECT_EQ(data->held_out_steps(), std::ranges::count(held_out, 1));
    for (const auto& [rows, steps] : {std::pair<Index, Index>{1, 4}, {2, 7}, {3, 64}, {32, 100}}) {
      std::vector<int> asked(held_out.size(), 0);
      Example example;
      for (Index i = 0; data->validation(i, rows, steps, example); ++i) {
        ASSERT_LE(example.rows, rows);
        ASSERT_LE(example.steps, steps);
        for (std::size_t k = 0; k < example.targets.size(); ++k) {
          if (example.weights[k] == 0.0f) continue;
          const auto value = raw(example.targets[k], target);
          EXPECT_EQ(value, raw(example.features[k], input) + 1);
          ++asked[static_cast<std::size_t>(value)];
        }
      }
      EXPECT_EQ(asked, held_out) << rows << " x " << steps << (linear ? " led in" : "");
    }
  }
}

TEST(SeriesGroups, WhatIsTooShortIsLeftOutOrTrainedOnWhole) {
  const TemporaryFolder folder;
  std::string text = "shop,x\n";
  for (int i = 0; i < 30; ++i) text += fmt::format("long,{}\n", i % 7);
  for (int i = 0; i < 7; ++i) text += fmt::format("middle,{}\n", i % 5);
  for (int i = 0; i < 4; ++i) text += fmt::format("short,{}\n", i % 5);
  const std::string path = folder.write("s.csv", text);
  const auto data = open_series(path, {.horizon = 4, .group = "shop"});
  ASSERT_EQ(data->description().series.groups.size(), 2u);
  EXPECT_EQ(data->description().series.groups[1].name, "middle");
  EXPECT_EQ(data->held_out_steps(), 6);
  EXPECT_THAT(data->reading(), testing::IsSupersetOf(
                                   {"2 series named by shop, of 7 to 30 rows",
                                    "1 of 2 series is too short for a hold-out set and is used for training as a whole",
                                    "1 series of fewer than 5 rows left out: \"short\" (4)"}));
  const auto refuse = [&](const SeriesOptions& options, ErrorCode code, const std::string& message) {
    expect_error(code, message, [&] { open_series(path, options); });
  };
  refuse({.horizon = 30, .group = "shop"}, ErrorCode::bad_input,
         "s.csv: horizon 30 takes 31 rows of a series, but the longest of the groups has 30");
  refuse({.horizon = 20, .group = "shop"}, ErrorCode::bad_input,
         "s.csv: no series is long enough for a hold-out set of 20 rows: the longest has 30");
  refuse({.group = "town"}, ErrorCode::invalid_argument, "s.csv has no column \"town\", only \"shop\", \"x\"");
  refuse({.inputs = {"x"}, .group = "x"}, ErrorCode::invalid_argument,
         "group: column \"x\" cannot be read or forecast as well");
  refuse({.season = 15, .group = "shop"}, ErrorCode::bad_input,
         "a season of 15 rows cannot be learnt from 24 training rows: it needs 30 or more");
  std::string index = "id,x\n";
  for (int i = 0; i < 9; ++i) index += fmt::format("{},{}\n", i, i % 4);
  expect_error(
      ErrorCode::bad_input,
      "column \"id\" has another value in each of 9 rows: it looks like an index, not like the name of a series",
      [&] { open_series(folder.write("i.csv", index), {.group = "id"}); });
  expect_error(ErrorCode::bad_input, "n.csv:3:1: column \"shop\": the value is missing",
               [&] { open_series(folder.write("n.csv", "shop,x\na,1\n,2\na,3\n"), {.group = "shop"}); });
}

TEST(SeriesGroups, GapsAreFilledWithinASeries) {
  const TemporaryFolder folder;
  const auto data = open_series(folder.write("s.csv", "shop,x\na,1\nb,10\na,\nb,\na,5\nb,30\na,7\nb,40\n"),
                                {.validation_fraction = 0, .missing = Missing::interpolate, .group = "shop"});
  const auto& groups = data->description().series.groups;
  EXPECT_DOUBLE_EQ(groups[0].inputs[0].mean, (1.0 + 3.0 + 5.0 + 7.0) / 4.0);
  EXPECT_DOUBLE_EQ(groups[1].inputs[0].mean, (10.0 + 20.0 + 30.0 + 40.0) / 4.0);
}

TEST(SeriesGroups, OneSeriesIsLearntAsWithoutAName) {
  const TemporaryFolder folder;
  Random random(3);
  std::string plain = "x\n", named = "shop,x\n";
  double value = 5.0;
  for (int i = 0; i < 150; ++i) {
    value =
        5.0 + 0.8 * (value - 5.0) + random.normal() + std::sin(static_cast<double>(i) * 2.0 * std::numbers::pi / 12.0);
    plain += fmt::format("{}\n", value);
    named += fmt::format("only,{}\n", value);
  }
  const SeriesOptions options{.horizon = 6, .from_last = true, .autoregression = true, .season = 12};
  SeriesOptions of_group = options;
  of_group.group = "shop";
  const auto without = open_series(folder.write("p.csv", plain), options);
  const auto with = open_series(folder.write("n.csv", named), of_group);
  Example expected, example;
  without->next(3, 40, expected);
  with->next(3, 40, example);
  EXPECT_EQ(example.features, expected.features);
  EXPECT_EQ(example.weights, expected.weights);
  for (std::size_t i = 0; i < expected.targets.size(); ++i) {
    // Scales of changes are sums of 600 squares of values divided before and not behind.
    EXPECT_NEAR(example.targets[i], expected.targets[i], 1e-5f * (1.0f + std::abs(expected.targets[i])));
  }
  ASSERT_EQ(linear_forecast(*with)->lags, linear_forecast(*without)->lags);
  for (std::size_t i = 0; i < linear_forecast(*with)->weights.size(); ++i) {
    EXPECT_NEAR(linear_forecast(*with)->weights[i], linear_forecast(*without)->weights[i], 1e-4f) << i;
  }
}

/// Autoregressive series of the first order, each of its own size.
std::vector<std::vector<double>> alike(std::size_t count, Index rows, double factor, std::uint64_t seed) {
  Random random(seed);
  std::vector<std::vector<double>> all(count);
  for (auto& values : all) {
    values.push_back(random.normal() / std::sqrt(1.0 - factor * factor));
    while (static_cast<Index>(values.size()) < rows) values.push_back(factor * values.back() + random.normal());
  }
  return all;
}

TEST(SeriesGroups, ALinearForecastLearnsFromAllSeries) {
  constexpr double factor = 0.6;
  constexpr Index rows = 25;
  const auto seen = alike(40, rows, factor, 1), fresh = alike(200, rows, factor, 2);
  // Mean square error on series that nothing was fitted to, one row ahead.
  const auto error_of = [&](const training::LinearForecast& forecast) {
    double squares = 0.0, count = 0.0;
    for (const auto& values : fresh) {
      for (Index row = 12; row + 1 < rows; ++row, ++count) {
        squares += std::pow(forecast.at(values, row, 1) - values[row + 1], 2.0);
      }
    }
    return squares / count;
  };
  const std::vector<std::span<const double>> z(seen.begin(), seen.end());
  const auto same = [](std::size_t, Index, double value) { return value; };
  const double of_all = error_of(training::fit_linear_forecast(z, training::choose_linear_forecast(z, 1, 1, 1, same)));
  double alone = 0.0;
  for (const auto& one : z) {
    const std::array single = {one};
    const auto choice = training::choose_linear_forecast(single, 1, 1, 1, same);
    alone += error_of(training::fit_linear_forecast(single, choice)) / static_cast<double>(z.size());
  }
  // The noise has variance 1, of which 200 x 12 squares miss the mean by a thirtieth: three of these, and a twentieth
  // for a mean of several kinds of forecast.
  EXPECT_LT(of_all, 1.0 + 3.0 / 30.0 + 0.05);
  EXPECT_LT(of_all, alone);
}

TEST(SeriesGroups, ASeasonIsFoundInAllOfThem) {
  const TemporaryFolder folder;
  Random random(9);
  std::string text = "shop,x\n";
  for (int shop = 0; shop < 30; ++shop) {
    for (int i = 0; i < 40; ++i) {
      const double angle = 2.0 * std::numbers::pi * (i + shop) / 7.0;
      text += fmt::format("{},{}\n", shop, (shop + 1) * (10.0 + std::sin(angle) + 0.4 * random.normal()));
    }
  }
  const auto data = open_series(folder.write("s.csv", text),
                                {.inputs = {"x"}, .from_last = true, .autoregression = true, .group = "shop"});
  EXPECT_EQ(data->description().series.season, 7);
}

TEST(SeriesGroups, ScoresOfAllAreMeansOfTheirs) {
  const auto score = [](Index scored, double rmse, double mae, double mase, double rival) {
    ColumnScore column;
    column.column = "x";
    column.scored = scored;
    column.model = {rmse, mae, mase, 0.1};
    column.quantiles = QuantileScore{.levels = {0.1, 0.9}, .coverage = mae / 10.0, .pinball = mae};
    column.rivals = {{"the last value", {rival, rival, 0.0, 0.0}}, {"drift", {rival, rival, 0.0, 0.0}}};
    return column;
  };
  std::vector<GroupScore> groups = {{"a", {score(10, 1.0, 2.0, 0.5, 3.0)}}, {"b", {score(30, 5.0, 4.0, 0.0, 7.0)}}};
  groups[1].columns[0].rivals.pop_back();
  const std::vector<ColumnScore> all = score_all(groups);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].scored, 40);
  EXPECT_DOUBLE_EQ(all[0].model.rmse, std::sqrt((10.0 + 30.0 * 25.0) / 40.0));
  EXPECT_DOUBLE_EQ(all[0].model.mae, (20.0 + 120.0) / 40.0);
  EXPECT_DOUBLE_EQ(all[0].model.mase, 0.5) << "that of b is not known";
  EXPECT_DOUBLE_EQ(all[0].quantiles->coverage, (10.0 * 0.2 + 30.0 * 0.4) / 40.0);
  ASSERT_EQ(all[0].rivals.size(), 1u) << "only of a is drift known";
  EXPECT_DOUBLE_EQ(all[0].rivals[0].errors.rmse, std::sqrt((90.0 + 30.0 * 49.0) / 40.0));
  EXPECT_TRUE(score_all({}).empty());
}

class GroupModel : public testing::Test {
 protected:
  GroupModel() {
    Random random(4);
    text_ = "shop,x,y\n";
    for (int i = 0; i < 60; ++i) {
      for (int shop = 1; shop <= 3; ++shop) {
        const double x = shop * (100.0 + 10.0 * std::sin(i / 3.0) + random.normal());
        text_ += fmt::format("s{},{:.3f},{:.3f}\n", shop, x, -x * shop);
      }
    }
    data_ = open_series(folder_.write("s.csv", text_),
                        {.targets = {"x"}, .horizon = 3, .from_last = true, .autoregression = true, .group = "shop"});
  }

  Model model() const {
    ModelSpec spec{.cell = "gru", .width = 8, .blocks = 1, .from_last = true};
    use_linear_forecast(spec, *data_);
    Model result(spec, data_->description(), 1);
    fit_autoregression(result, *data_);
    return result;
  }

  std::vector<std::string> lines() const {
    std::vector<std::string> all;
    for (std::size_t begin = 0; begin < text_.size();) {
      const std::size_t end = text_.find('\n', begin);
      all.push_back(text_.substr(begin, end - begin));
      begin = end + 1;
    }
    return all;
  }

  TemporaryFolder folder_;
  std::string text_;
  std::unique_ptr<Dataset> data_;
};

TEST_F(GroupModel, RowsOfAStreamMeanWhatTheyMeantInTraining) {
  const Model trained = model();
  std::map<std::string, std::vector<double>> in_training;
  const auto scores = score_groups_held_out(
      trained, *data_, {},
      [&](const std::string& group, const DataDescription&, auto, std::span<const double> forecasts, auto, auto) {
        in_training[group].insert(in_training[group].end(), forecasts.begin(), forecasts.end());
      });
  EXPECT_EQ(scores.size(), 3u);

  const std::string path = folder_.path("model.safetensors");
  trained.save(path);
  const Model loaded = Model::load(path);
  const std::vector<std::string> all = lines();
  RowReader reader(loaded.data(), all[0], "-");
  std::map<std::string, ModelState> states;
  std::map<std::string, std::vector<double>> streamed;
  std::vector<float> features(static_cast<std::size_t>(loaded.data().input_size())), forecasts(3);
  for (std::size_t i = 1; i < all.size(); ++i) {
    ASSERT_TRUE(reader.read(all[i], features));
    ASSERT_TRUE(reader.knows_group());
    const std::string& name = reader.group().name;
    const DataDescription own = loaded.data().of_group(reader.group());
    ModelState& state = states.try_emplace(name, loaded.state(1)).first->second;
    loaded.forward(1, 1, std::span<const float>(features), forecasts, state);
    if ((i - 1) / 3 < 60 - 12 - 1) continue;  // leads in
    for (const float value : forecasts) streamed[name].push_back(own.targets[0].raw(static_cast<double>(value)));
  }
  for (const auto& [name, expected] : in_training) {
    ASSERT_EQ(streamed[name].size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      // Sums of up to 128 products in another order.
      EXPECT_NEAR(streamed[name][i], expected[i], 128.0 * 1.2e-7 * std::abs(expected[i])) << name;
    }
  }
}

TEST_F(GroupModel, ASeriesThatTrainingDidNotSeeIsScaledByItsRows) {
  const Model trained = model();
  RowReader reader(trained.data(), "y,x,shop", "-", {.missing = Missing::carry});
  const std::vector<double> xs = {50000.0, 50004.0, 50001.0, 50007.0};
  std::vector<float> features;
  for (std::size_t i = 0; i < xs.size(); ++i) {
    features.resize(features.size() + 2);
    // The first y is missing: there is no last value to carry on.
    const std::string line = fmt::format("{},{},new", i == 0 ? "" : fmt::format("{}", 2 * i), xs[i]);
    ASSERT_TRUE(reader.read(line, std::span(features).last(2)));
    EXPECT_FALSE(reader.knows_group());
  }
  const Group scaling = reader.settle_group("new", features, 3);
  EXPECT_NEAR(scaling.inputs[0].mean, (xs[0] + xs[1] + xs[2]) / 3.0, 1e-9);
  EXPECT_NEAR(scaling.inputs[1].mean, 3.0, 1e-9) << "of the two that are there";
  EXPECT_EQ(scaling.targets[0].scale, scaling.inputs[0].scale);
  for (std::size_t i = 0; i < xs.size(); ++i) {
    EXPECT_FLOAT_EQ(features[2 * i], static_cast<float>((xs[i] - scaling.inputs[0].mean) / scaling.inputs[0].scale));
  }
  EXPECT_EQ(features[1], 0.0f) << "the mean";
  std::vector<float> row(2);
  ASSERT_TRUE(reader.read(",50004,new", row));
  EXPECT_TRUE(reader.knows_group());
  EXPECT_FLOAT_EQ(row[0], features[2]);
  EXPECT_FLOAT_EQ(row[1], features[7]) << "the last value, by the new scaling";
  ASSERT_TRUE(reader.read(",200,s2", row));
  EXPECT_EQ(row[1], 0.0f) << "nothing is carried on from another series";

  RowReader again(trained.data(), "shop,x,y", "-");
  again.add_group(scaling);
  ASSERT_TRUE(again.read("new,50004,2", row));
  EXPECT_TRUE(again.knows_group());
  EXPECT_FLOAT_EQ(row[0], features[2]);
  expect_error(ErrorCode::bad_input, "-:1:1: column \"shop\" names the series of a row, but the header has only",
               [&] { RowReader(trained.data(), "x,y", "-"); });
  expect_error(ErrorCode::bad_input, "-:3:1: column \"shop\": the value is missing", [&] { again.read(",1,2", row); });
}

TEST_F(GroupModel, ASeriesMayHaveAForecastOfItsOwn) {
  Model trained = model();
  const auto described = [](const Model& of, std::size_t group) {
    return of.data().of_group(of.data().series.groups[group]);
  };
  EXPECT_FALSE(trained.of_series(described(trained, 1)));
  const Autoregression own = {
      .lags = 2, .weights = {0.5f, 1.0f, 1.5f, -0.5f, -1.0f, -1.5f}, .bias = {1.0f, 2.0f, 3.0f}};
  trained.impl().data.series.groups[1].own = own;
  trained.save(folder_.path("own.safetensors"));
  const Model read = Model::load(folder_.path("own.safetensors"));
  EXPECT_THAT(read.data().series.own_forecasts(), testing::ElementsAre("s2"));
  EXPECT_FALSE(read.of_series(described(read, 0)));
  const auto alone = read.of_series(described(read, 1));
  ASSERT_TRUE(alone);
  const std::vector<float> features = {0.25f, 0.0f, 1.0f, 0.0f, -0.5f, 0.0f};
  std::vector<float> forecasts(9);
  ModelState state = alone->state(1);
  alone->forward(1, 3, features, forecasts, state);
  const Column &input = alone->data().inputs[0], &target = alone->data().targets[0];
  const auto in_target = [&](float x) { return target.normal(input.raw(static_cast<double>(x))); };
  const double last = in_target(features[4]), before = in_target(features[2]);
  for (std::size_t h = 0; h < 3; ++h) {
    EXPECT_NEAR(forecasts[6 + h], last + own.bias[h] + own.weights[h] * (last - before), 1e-4);
  }

  // A reader makes a model of what the file describes, too.
  DataDescription description = data_->description();
  const auto refused = [&](const Autoregression& wrong, const std::string& message, bool from_last = true) {
    description.series.groups[1].own = wrong;
    expect_error(ErrorCode::invalid_argument, message,
                 [&] { Model({.width = 8, .blocks = 1, .from_last = from_last}, description); });
  };
  refused(own, "from_last must be true for a model with series that have a forecast of their own", false);
  refused({.lags = 3, .weights = own.weights, .bias = own.bias}, "own: weights must hold 9 values, not 6");
  refused({.lags = 2, .weights = own.weights, .bias = {}}, "own: bias must hold 3 values, not 0");
  refused({.lags = 70000, .weights = own.weights, .bias = own.bias}, "lags must be 0 to 65536, not 70000");
  refused({.lags = 2, .weights = own.weights, .bias = own.bias, .effects = {1.0f}}, "own: effects must hold 0 values");
}

TEST_F(GroupModel, GroupsThatDoNotFitAreRefused) {
  DataDescription description = data_->description();
  description.series.groups[1].inputs.pop_back();
  const ModelSpec spec{.cell = "gru", .width = 8, .blocks = 1};
  expect_error(ErrorCode::invalid_argument, "groups: \"s2\" has scalings of 1 columns, not of 2",
               [&] { Model(spec, description); });
  description.series.groups[1].inputs.push_back({0.0, 0.0});
  expect_error(ErrorCode::invalid_argument, "groups: means of \"s2\" must be finite and scales positive, not 0 and 0",
               [&] { Model(spec, description); });
  description.series.groups.clear();
  expect_error(ErrorCode::invalid_argument, "groups must go with the column that names them",
               [&] { Model(spec, description); });
}

}  // namespace
}  // namespace penstock
