// Columns known in advance: inputs of a forecast are values of the rows that are forecast.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/random.h"
#include "penstock/forecast/score.h"
#include "penstock/train.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace penstock {
namespace {

using test::expect_error;
using test::TemporaryFolder;

/// price = 0, 1, 2, ..., sales = 3 times that; behind the last row `to_come` more prices.
std::string priced(int rows, int to_come) {
  std::string text = "sales,price\n";
  for (int i = 0; i < rows + to_come; ++i)
    text += i < rows ? fmt::format("{},{}\n", 3 * i, i) : fmt::format(",{}\n", i);
  return text;
}

double raw(float value, const Column& column) { return column.raw(static_cast<double>(value)); }

TEST(KnownAhead, InputsAreTheValuesOfLaterRows) {
  const TemporaryFolder folder;
  const auto data = open_series(folder.write("s.csv", priced(20, 2)), {.horizon = 3, .known = {"price"}});
  const DataDescription& description = data->description();
  ASSERT_EQ(description.inputs.size(), 2u + 3u);
  EXPECT_EQ(description.inputs[4].title(), "price (+3)");
  EXPECT_TRUE(description.reads_ahead());
  EXPECT_TRUE(description.is_known_ahead("price"));
  EXPECT_FALSE(description.is_known_ahead("sales"));
  ASSERT_EQ(description.targets.size(), 1u) << "what is known is not forecast";
  EXPECT_EQ(description.targets[0].name, "sales");
  EXPECT_THAT(data->reading(), testing::Contains("2 rows at the end, of which only known columns are read"));
  EXPECT_EQ(data->training_steps() + data->held_out_steps(), 19);
  Example example;
  for (Index i = 0; data->validation(i, 1, 64, example); ++i) {
    for (std::size_t t = 0; t < example.features.size() / 5; ++t) {
      const float* const x = example.features.data() + 5 * t;
      const double now = raw(x[1], description.inputs[1]);
      EXPECT_NEAR(raw(x[0], description.inputs[0]), 3.0 * now, 1e-4);
      for (int ahead = 1; ahead <= 3; ++ahead) {
        EXPECT_NEAR(raw(x[1 + ahead], description.inputs[1 + ahead]), std::min(now + ahead, 21.0), 1e-4);
      }
    }
  }
  const auto ends = open_series(folder.write("e.csv", priced(20, 0)), {.horizon = 3, .known = {"price"}});
  ASSERT_TRUE(ends->validation(0, 1, 64, example));
  EXPECT_EQ(example.features.back(), example.features[example.features.size() - 2]) << "nothing behind the last row";
}

TEST(KnownAhead, OfEachSeriesByItself) {
  const TemporaryFolder folder;
  std::string text = "shop,sales,price\n";
  for (int i = 0; i < 12; ++i) {
    for (const int shop : {1, 100}) text += fmt::format("s{},{},{}\n", shop, shop * i, shop * (i % 4));
  }
  text += "s1,,7\n";
  const auto data = open_series(folder.write("s.csv", text),
                                {.horizon = 2, .validation_fraction = 0, .group = "shop", .known = {"price"}});
  Example example;
  data->next(1, data->training_steps(), example);
  const auto& description = data->description();
  for (std::size_t t = 0; t < 22; ++t) {
    const DataDescription own = description.of_group(description.series.groups[t / 11]);
    const std::size_t row = t % 11;
    const auto price = [&](std::size_t later) {
      const std::size_t last = t < 11 ? 12 : 11;
      return later > last ? -1.0 : later == 12 ? 7.0 : (t < 11 ? 1.0 : 100.0) * static_cast<double>(later % 4);
    };
    EXPECT_NEAR(raw(example.features[4 * t + 2], own.inputs[2]), price(row + 1), 1e-4) << t;
    EXPECT_NEAR(raw(example.features[4 * t + 3], own.inputs[3]),
                price(std::min<std::size_t>(row + 2, t < 11 ? 12 : 11)), 1e-4)
        << t;
  }
}

TEST(KnownAhead, WhatMustBeThereIsAskedFor) {
  const TemporaryFolder folder;
  const std::string path = folder.write("s.csv", priced(20, 0));
  const auto refuse = [&](const SeriesOptions& options, const std::string& message) {
    expect_error(ErrorCode::invalid_argument, message, [&] { open_series(path, options); });
  };
  refuse({.known = {"date"}}, "known: " + path + " has no column \"date\"");
  refuse({.targets = {"price"}, .known = {"price"}},
         "known: column \"price\" is forecast and therefore not known in advance");
  refuse({.known = {"price", "sales"}}, "known: no column of " + path + " is left to be forecast");
  expect_error(ErrorCode::bad_input,
               "g.csv:3:3: column \"price\": the value is missing, but this column must be known in advance",
               [&] { open_series(folder.write("g.csv", "sales,price\n1,2\n3,\n4,5\n"), {.known = {"price"}}); });
  const std::string gap = folder.write("t.csv", "sales,price\n1,2\n,4\n4,5\n6,5\n,6\n");
  expect_error(ErrorCode::bad_input, "t.csv:3: no target has a value, but rows with values follow",
               [&] { open_series(gap, {.validation_fraction = 0, .known = {"price"}}); });
  const auto data = open_series(gap, {.validation_fraction = 0, .missing = Missing::interpolate, .known = {"price"}});
  EXPECT_EQ(data->training_steps(), 3);
  EXPECT_THAT(data->reading(), testing::Contains("1 missing value interpolated")) << "rows to come lack nothing";
}

TEST(KnownAhead, RowsOfAFileMeanWhatTheyMeantInTraining) {
  const TemporaryFolder folder;
  const auto data =
      open_series(folder.write("s.csv", priced(20, 0)), {.horizon = 2, .validation_fraction = 0, .known = {"price"}});
  Example example;
  data->next(1, data->training_steps(), example);
  const DataDescription& description = data->description();
  RowReader reader(description, "price,sales", "-");
  std::vector<float> features(22 * 4);
  for (int i = 0; i < 22; ++i) {
    const std::string line = i < 20 ? fmt::format("{},{}", i, 3 * i) : fmt::format("{},", i);
    ASSERT_TRUE(reader.read(line, std::span(features).subspan(4 * static_cast<std::size_t>(i), 4)));
    EXPECT_EQ(reader.is_to_come(), i >= 20);
  }
  fill_ahead(description, features);
  for (std::size_t i = 0; i < 18 * 4; ++i) EXPECT_EQ(features[i], example.features[i]) << i;
  EXPECT_NEAR(raw(features[19 * 4 + 3], description.inputs[3]), 21.0, 1e-4);
  EXPECT_TRUE(std::isnan(features[20 * 4])) << "nothing is known of sales to come";
  std::vector<float> row(4);
  expect_error(ErrorCode::bad_input, "column \"price\": the value is missing", [&] { reader.read(",", row); });
}

TEST(KnownAhead, AForecastKnowsWhatIsToCome) {
  const TemporaryFolder folder;
  Random random(2);
  std::string text = "x,event\n";
  for (int i = 0; i < 400; ++i) {
    const int event = random.uniform() < 0.3 ? 1 : 0;
    text += fmt::format("{},{}\n", 10.0 + 5.0 * event + 0.1 * random.normal(), event);
  }
  const std::string path = folder.write("s.csv", text);
  const auto rmse = [&](const std::vector<std::string>& known) {
    const auto data =
        open_series(path, {.targets = {"x"}, .horizon = 2, .from_last = true, .autoregression = true, .known = known});
    ModelSpec spec{.cell = "gru", .width = 16, .blocks = 1, .from_last = true};
    use_linear_forecast(spec, *data);
    Model model(spec, data->description(), 1);
    fit_autoregression(model, *data);
    TrainOptions training;
    training.max_steps = 150;
    training.batch = 8;
    training.length = 32;
    training.learning_rate = 1e-2;
    train(model, *data, training);
    return score_held_out(model, *data)[0].model.rmse;
  };
  // An event that nobody knows of is worth 5 sqrt(0.3 * 0.7) = 2.29; noise remains of one that is known.
  EXPECT_GT(rmse({}), 2.0);
  EXPECT_LT(rmse({"event"}), 1.0);
}

}  // namespace
}  // namespace penstock
