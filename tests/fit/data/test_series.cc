#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "data/series/series_rows.h"
#include "penstock/data.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace penstock {
namespace {

using test::expect_error;
using test::TemporaryFolder;

/// time,x,y with x = 0, 1, 2, ... and y = 100, 98, 96, ...
std::string ramp(int rows) {
  std::string text = "time,x,y\n";
  for (int i = 0; i < rows; ++i) text += fmt::format("d{},{},{}\n", i, i, 100 - 2 * i);
  return text;
}

double raw(float value, const Column& column) { return value * column.scale + column.mean; }

TEST(SeriesData, DescriptionHoldsWhatRawDataMean) {
  const TemporaryFolder folder;
  const auto data = open_series(folder.write("s.csv", ramp(10)), {.targets = {"y"}, .horizon = 2});
  const DataDescription& description = data->description();
  EXPECT_EQ(description.task, Task::forecast);
  EXPECT_EQ(description.vocabulary, 0);
  ASSERT_EQ(description.inputs.size(), 2u) << "the numeric columns";
  EXPECT_EQ(description.inputs[0].name, "x");
  EXPECT_DOUBLE_EQ(description.inputs[0].mean, 3.5) << "of the first eight rows alone";
  EXPECT_DOUBLE_EQ(description.inputs[0].scale, std::sqrt(63.0 / 12.0));
  ASSERT_EQ(description.targets.size(), 1u);
  EXPECT_EQ(description.targets[0].name, "y");
  EXPECT_DOUBLE_EQ(description.targets[0].mean, 93.0);
  EXPECT_EQ(description.series.horizon, 2);
  EXPECT_EQ(description.output_size(), 2);
  EXPECT_EQ(description.table.delimiter, ',');
  EXPECT_EQ(data->training_steps(), 7);
}

TEST(SeriesData, TargetsThatAreReadMayBeScaledByTheirChanges) {
  const TemporaryFolder folder;
  const auto scales = [&](Index horizon) {
    const auto data = open_series(folder.write("s.csv", ramp(100)),
                                  {.inputs = {"x"}, .targets = {"y", "x"}, .horizon = horizon, .from_last = true});
    const DataDescription& description = data->description();
    EXPECT_DOUBLE_EQ(description.inputs[0].scale, std::sqrt((80.0 * 80.0 - 1.0) / 12.0));
    EXPECT_DOUBLE_EQ(description.targets[0].scale, 2.0 * description.inputs[0].scale) << "is not read";
    Example example;
    data->next(1, 2, example);
    EXPECT_NEAR(raw(example.targets[1], description.targets[1]), 1.0, 1e-5);
    return description.targets[1].scale;
  };
  EXPECT_DOUBLE_EQ(scales(1), 1.0);
  EXPECT_NEAR(scales(2), std::sqrt((79.0 * 1.0 + 78.0 * 4.0) / (79.0 + 78.0)), 1e-14);  // of 80 training rows
  EXPECT_GT(scales(20), scales(19));
}

TEST(SeriesData, TargetsAreTheNextValues) {
  const TemporaryFolder folder;
  const Index horizon = 3;
  const auto data =
      open_series(folder.write("s.csv", ramp(10)),
                  {.inputs = {"x"}, .targets = {"y", "x"}, .horizon = horizon, .validation_fraction = 0.3});
  const auto& inputs = data->description().inputs;
  const auto& targets = data->description().targets;
  Example example;
  data->next(2, 6, example);
  ASSERT_EQ(example.features.size(), 2u * 6 * 1);
  ASSERT_EQ(example.targets.size(), 2u * 6 * 3 * 2);
  for (Index b = 0; b < 2; ++b) {
    for (Index t = 0; t < 6; ++t) {
      const Index row = (3 * b + t) % 6;  // six training steps over seven training rows
      EXPECT_NEAR(raw(example.features[b * 6 + t], inputs[0]), static_cast<double>(row), 1e-5);
      for (Index j = 0; j < horizon; ++j) {
        const Index future = row + 1 + j;
        for (Index c = 0; c < 2; ++c) {
          const Index i = ((b * 6 + t) * horizon + j) * 2 + c;
          EXPECT_EQ(example.weights[i], future < 7 ? 1.0f : 0.0f) << "held-out rows are no training targets";
          if (future >= 7) {
            EXPECT_EQ(example.targets[i], 0.0f);
          } else {
            EXPECT_NEAR(raw(example.targets[i], targets[c]), static_cast<double>(c == 0 ? 100 - 2 * future : future),
                        1e-4);
          }
        }
      }
    }
  }
  EXPECT_EQ(example.reset, (std::vector<std::uint8_t>{0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0}));
  EXPECT_TRUE(example.tokens.empty());
  EXPECT_TRUE(example.labels.empty());
}

TEST(SeriesData, ValidationAsksForEveryHeldOutRow) {
  const TemporaryFolder folder;
  const auto data = open_series(folder.write("s.csv", ramp(50)), {.inputs = {"x"}, .validation_fraction = 0.5});
  const Column& column = data->description().targets[0];
  EXPECT_EQ(column.name, "x") << "targets are the inputs unless named";
  for (const auto& [rows, steps] : {std::pair<Index, Index>{1, 4}, {3, 4}, {32, 100}}) {
    std::vector<int> asked(50, 0);
    Example example;
    for (Index i = 0; data->validation(i, rows, steps, example); ++i) {
      EXPECT_EQ(example.continues, i > 0);
      for (std::size_t k = 0; k < example.targets.size(); ++k) {
        if (example.weights[k] == 0.0f) continue;
        const double value = raw(example.targets[k], column);
        EXPECT_NEAR(value, raw(example.features[k], column) + 1.0, 1e-4);
        ++asked[std::lround(value)];
      }
    }
    for (int row = 0; row < 50; ++row) EXPECT_EQ(asked[row], row < 25 ? 0 : 1) << "row " << row;
  }
}

TEST(SeriesData, HeldOutRowsAreLedInByWhatALinearForecastReads) {
  constexpr Index all = 500, held_out = 100, settling = 128;
  const TemporaryFolder folder;
  const auto data = open_series(folder.write("s.csv", ramp(all)), {.from_last = true, .autoregression = true});
  for (const auto& [past, lead] : {std::pair<Index, Index>{0, settling}, {40, settling}, {250, 250}, {1000, 399}}) {
    Example example;
    ASSERT_TRUE(data->series_rows()->held_out_batch(0, 1, all, past, example));
    EXPECT_EQ(example.steps, lead + held_out) << past;
    EXPECT_EQ(std::ranges::count(example.weights, 0.0f), 2 * lead) << past << ": of two targets";
  }
}

TEST(SeriesData, ConstantColumnIsLeftAlone) {
  const TemporaryFolder folder;
  const auto data = open_series(folder.write("s.csv", "a,b\n0.1,1\n0.1,2\n0.1,3\n0.1,4\n"),
                                {.inputs = {"a", "b"}, .validation_fraction = 0});
  EXPECT_EQ(data->description().inputs[0].scale, 1.0);
  EXPECT_NEAR(data->description().inputs[0].mean, 0.1, 1e-12);
}

TEST(SeriesData, OtherDelimiterAndLineEnds) {
  const TemporaryFolder folder;
  const auto data = open_series(folder.write("s.csv", "\xef\xbb\xbf\"a\";b\r\n1;2\r\n3;4\r\n5;\"6\"\r\n\r\n"),
                                {.validation_fraction = 0});
  EXPECT_EQ(data->description().table.delimiter, ';');
  EXPECT_EQ(data->description().inputs[0].name, "a");
  EXPECT_DOUBLE_EQ(data->description().inputs[1].mean, 4.0);
}

TEST(SeriesData, PositionAndRestore) {
  const TemporaryFolder folder;
  const std::string path = folder.write("s.csv", ramp(100));
  const auto data = open_series(path);
  Example expected, example;
  data->next(3, 17, expected);
  const std::string position = data->position();
  data->next(3, 70, expected);
  const auto other = open_series(path);
  other->restore(position);
  other->next(3, 70, example);
  EXPECT_EQ(example.features, expected.features);
  EXPECT_EQ(example.targets, expected.targets);
  EXPECT_EQ(example.reset, expected.reset);
  EXPECT_TRUE(example.continues);
  expect_error(ErrorCode::incompatible, "this position belongs to other series data",
               [&] { open_series(path, {.inputs = {"x"}})->restore(position); });
  expect_error(ErrorCode::incompatible, "this position belongs to other series data",
               [&] { open_series(path, {.horizon = 2})->restore(position); });
  expect_error(ErrorCode::incompatible, "this position belongs to other series data",
               [&] { open_series(path, {.validation_fraction = 0.3})->restore(position); });
  std::string outside = position;
  outside.replace(outside.find("[17,"), 4, "[79,");
  expect_error(ErrorCode::bad_input, "the position in the series data lies outside of them",
               [&] { data->restore(outside); });
}

TEST(SeriesData, BadCells) {
  const TemporaryFolder folder;
  const auto refuse = [&](const std::string& content, const std::string& message) {
    const std::string path = folder.write("s.csv", content);
    expect_error(ErrorCode::bad_input, path + message, [&] { open_series(path, {.validation_fraction = 0}); });
  };
  refuse("", ": the file is empty; it must start with the names of its columns");
  refuse("a,b\n", ": no rows after the header");
  refuse("a,a\n1,2\n", ":1:3: the header has two columns \"a\"");
  refuse("a,b\n1,2\n1,2\n", ": no numeric column changes, so there is nothing to learn from among \"a\", \"b\"");
  refuse("a,b\n1,2\n3,4\n5,x\n", ":4:3: column \"b\": \"x\" is not a number");
  refuse("a,b\n1,2\n3,\n5,6\n", ":3:3: column \"b\": the value is missing");
  refuse("a,b\n1,2\n,4\n3,5\n", ":3:1: column \"a\": the value is missing");
  refuse("a,b\n1,2\nnan,4\n3,5\n",
         ":3:1: column \"a\": the value is missing; the option 'missing' (carry, interpolate or");
  refuse("a,b\n1,inf\n3,4\n", ":2:3: column \"b\": \"inf\" is not a finite number");
  refuse("a,b\n1,2\n3\n", ":3:1: 1 field, the header has 2");
  refuse("a,b\n1,2\n3,4,5\n", ":3:5: 3 fields, the header has 2");
  refuse("a,b\n1,2\n\n3,4\n", ":3:1: blank line between the rows");
  refuse("a,b\n1,\"2\n", ":2:3: the quote is never closed");
  refuse("a\n1\n", ": 1 row is too few for horizon 1: training gets 1 and needs 2, validation gets 0 and needs 0");
  refuse("a\n1e308\n1e308\n-1e308\n", ": column \"a\": the values are too large for a mean and a spread");
  refuse("a\nx\ny\n", ": no numeric column to use as input among \"a\"");
  refuse(std::string("\xff\xfe"
                     "a\0\n\0"
                     "1\0\n",
                     9),
         ": text in UTF-16 that ends within a character");
}

TEST(SeriesData, UnusedColumnsMayHoldAnything) {
  const TemporaryFolder folder;
  EXPECT_NO_THROW(
      open_series(folder.write("s.csv", "a,b\n1,x\n2,\n3,\xff\n"), {.inputs = {"a"}, .validation_fraction = 0}));
}

TEST(SeriesData, BadOptions) {
  const TemporaryFolder folder;
  const std::string path = folder.write("s.csv", ramp(20));
  const auto refuse = [&](const SeriesOptions& options, ErrorCode code, const std::string& message) {
    expect_error(code, message, [&] { open_series(path, options); });
  };
  constexpr auto use = ErrorCode::invalid_argument;
  refuse({.inputs = {"x", "z"}}, use, "inputs: " + path + " has no column \"z\", only \"time\", \"x\", \"y\"");
  refuse({.targets = {"z"}}, use, "targets: " + path + " has no column \"z\", only \"time\", \"x\", \"y\"");
  refuse({.inputs = {"x", "x"}}, use, "inputs: column \"x\" is there twice");
  refuse({.horizon = 0}, use, "horizon must be 1 to 1000000, not 0");
  refuse({.horizon = 1'000'001}, use, "horizon must be 1 to 1000000, not 1000001");
  refuse({.validation_fraction = 0.51}, use, "validation_fraction must be in [0, 0.5], not 0.51");
  refuse({.format = {.delimiter = '.'}}, use, "delimiter must be a character that no number contains");
  refuse({.inputs = {"time"}}, ErrorCode::bad_input, ":2:1: column \"time\": \"d0\" is not a number");
  refuse({.horizon = 10}, ErrorCode::bad_input,
         "20 rows are too few for horizon 10: training gets 16 and needs 11, validation gets 4 and needs 10");
  EXPECT_NO_THROW(open_series(path, {.horizon = 19, .validation_fraction = 0.0}));
  refuse({.horizon = 20, .validation_fraction = 0.0}, ErrorCode::bad_input, "training gets 20 and needs 21");
  EXPECT_EQ(open_series(path, {.horizon = 4})->held_out_steps(), 4);
  EXPECT_EQ(open_series(path, {.horizon = 5})->held_out_steps(), 5) << "a fifth would hold no whole forecast";
  EXPECT_EQ(open_series(path, {.horizon = 9})->held_out_steps(), 9);
}

}  // namespace
}  // namespace penstock
