// Dates of a series as inputs: which column holds them, which cycles are read, and the same inputs from rows later on.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "penstock/data.h"
#include "penstock/data/rows.h"
#include "penstock/model.h"
#include "penstock/train/fine_tune.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace penstock {
namespace {

using test::expect_error;
using test::TemporaryFolder;

constexpr double day = 86400.0;

/// A row a day from Monday, 6 January 2020; values that follow the week and the year.
std::string days(int rows, const char* separator = "-") {
  constexpr int lengths[] = {31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  std::string text = "when,x\n";
  int month = 0, of_month = 6, year = 2020;
  for (int i = 0; i < rows; ++i) {
    text += fmt::format("{}{}{:02}{}{:02},{}\n", year, separator, month + 1, separator, of_month,
                        i * i % 17 + 9 * (i % 7) + std::lround(30.0 * std::sin(2.0 * std::numbers::pi * i / 365.25)));
    const int length = month == 1 && year % 4 != 0 ? 28 : lengths[month];
    if (++of_month <= length) continue;
    of_month = 1;
    if (++month == 12) month = 0, ++year;
  }
  return text;
}

std::vector<std::string> titles(const Dataset& data) {
  std::vector<std::string> all;
  for (const Column& column : data.description().inputs) all.push_back(column.title());
  return all;
}

TEST(Calendar, ReadsTheCyclesThatTheRowsShowTwice) {
  const TemporaryFolder folder;
  const auto read = [&](int rows) {
    return titles(*open_series(folder.write("s.csv", days(rows)), {.calendar = {.read = true}}));
  };
  const std::vector<std::string> week = {"x", "when (week_sine)", "when (week_cosine)"};
  EXPECT_EQ(read(12), std::vector<std::string>{"x"}) << "training sees nine days";
  EXPECT_EQ(read(40), week);
  EXPECT_EQ(read(900), week) << "720 days are no two years";
  EXPECT_EQ(read(1000).size(), 5u);
  EXPECT_EQ(titles(*open_series(folder.write("s.csv", days(1000)))), std::vector<std::string>{"x"}) << "not asked for";
}

TEST(Calendar, InputsAreTheAngleOfTheDate) {
  const TemporaryFolder folder;
  const auto data = open_series(folder.write("s.csv", days(1000)), {.calendar = {.read = true}});
  Example example;
  data->next(1, 20, example);
  for (Index t = 0; t < 20; ++t) {
    const float* features = &example.features[static_cast<std::size_t>(t * 5)];
    const double week = 2.0 * std::numbers::pi * static_cast<double>(t) / 7.0;
    const double year = 2.0 * std::numbers::pi * static_cast<double>(t + 5) / 366.0;
    EXPECT_NEAR(features[1], std::sin(week), 1e-6);
    EXPECT_NEAR(features[2], std::cos(week), 1e-6);
    EXPECT_NEAR(features[3], std::sin(year), 1e-6);
    EXPECT_NEAR(features[4], std::cos(year), 1e-6);
  }
}

TEST(Calendar, CyclesAndColumnMayBeGiven) {
  const TemporaryFolder folder;
  std::string text = "id,date,stamp,x\n";
  for (int i = 0; i < 50; ++i) {
    text += fmt::format("{},{:02}/01/2020,2020-01-{:02}T{:02}:00,{}\n", i, i / 24 + 1, i / 24 + 10, i % 24, i % 7);
  }
  const std::string path = folder.write("s.csv", text);
  const auto open = [&](const CalendarOptions& calendar) {
    return titles(*open_series(path, {.inputs = {"x"}, .calendar = calendar}));
  };
  EXPECT_EQ(open({.read = true, .column = "stamp", .cycles = {Cycle::day}}),
            (std::vector<std::string>{"x", "stamp (day_sine)", "stamp (day_cosine)"}));
  EXPECT_EQ(open({.read = true, .column = "stamp"}).size(), 1u) << "40 hours are no two days to train on";
  expect_error(ErrorCode::bad_input, "column \"x\": \"0\" is no date", [&] { open({.read = true, .column = "x"}); });
  expect_error(ErrorCode::invalid_argument, "no column \"y\"", [&] { open({.read = true, .column = "y"}); });
  const std::string daily = folder.write("d.csv", days(100));
  expect_error(ErrorCode::invalid_argument, "rows are a day apart, too far for the time of day",
               [&] { open_series(daily, {.calendar = {.read = true, .cycles = {Cycle::day}}}); });
  const std::string none = folder.write("n.csv", "a,x\nb,1\nc,2\nd,3\ne,2\nf,1\ng,0\n");
  expect_error(ErrorCode::invalid_argument, "has no column of dates that rise",
               [&] { open_series(none, {.calendar = {.read = true, .cycles = {Cycle::day}}}); });
  EXPECT_EQ(open_series(none, {.calendar = {.read = true}})->description().inputs.size(), 1u);
}

TEST(Calendar, SaysWhatItFound) {
  const TemporaryFolder folder;
  const auto reading = [&](const std::string& text) {
    return open_series(folder.write("s.csv", text), {.calendar = {.read = true}})->reading();
  };
  const std::vector<Message> daily = reading(days(100));
  ASSERT_FALSE(daily.empty());
  EXPECT_EQ(daily.back(), "when: a row a day; the day of the week as input");
  std::string gap = days(100);
  gap.erase(gap.find("2020-02-03"), std::string("2020-02-03,6\n").size() - 1);
  gap = gap.substr(0, gap.find('\n', gap.find("2020-02-02"))) + gap.substr(gap.find("\n2020-02-04"));
  EXPECT_EQ(reading(gap).back(),
            "when: a row a day, with 1 irregular step, a day to 2 days; the day of the week as "
            "input");
}

TEST(Calendar, CyclesThatTheRowsDoNotFollowAreReadOnlyIfAskedFor) {
  const TemporaryFolder folder;
  const auto open = [&](const std::string& text, const std::vector<Cycle>& cycles) {
    return open_series(folder.write("s.csv", text), {.calendar = {.read = true, .cycles = cycles}});
  };
  std::string noise = "when,x\n";
  for (int i = 0; i < 200; ++i) noise += fmt::format("2024-{:02}-{:02},{}\n", 1 + i / 28, 1 + i % 28, i * i % 23);
  EXPECT_EQ(titles(*open(noise, {})), std::vector<std::string>{"x"});
  EXPECT_THAT(open(noise, {})->reading().back().text(),
              testing::EndsWith("; the day of the week is no input, because the training rows do not follow it"));
  EXPECT_EQ(titles(*open(noise, {Cycle::week})).size(), 3u);
  std::string months = "when,x\n";
  for (int i = 0; i < 300; ++i) months += fmt::format("{}-{:02},{}\n", 1950 + i / 12, 1 + i % 12, i * i % 23);
  EXPECT_EQ(open(months, {})->reading().back(),
            "when: a row a month; the day of the year is no input, because the training rows do not follow it");
}

TEST(Calendar, DatesThatDoNotRiseAreNotRead) {
  const TemporaryFolder folder;
  const auto opened = [&](const std::vector<std::string>& dates, const std::string& column = "") {
    std::string text = "when,x\n";
    for (std::size_t i = 0; i < dates.size(); ++i) text += fmt::format("{},{}\n", dates[i], i % 5);
    return open_series(folder.write("s.csv", text), {.calendar = {.read = true, .column = column}});
  };
  const auto said = [&](const std::vector<std::string>& dates) {
    const auto data = opened(dates);
    EXPECT_EQ(data->description().inputs.size(), 1u);
    return data->reading().back();
  };
  std::vector<std::string> dates, twice, falling;
  for (int i = 0; i < 40; ++i) {
    dates.push_back(fmt::format("2020-01-{:02}", 1 + i % 20));
    twice.push_back(fmt::format("2020-01-{:02}", 1 + i / 4));
    falling.push_back(fmt::format("2020-{:02}-{:02}", 2 - i / 20, 20 - i % 20));
  }
  const std::string advice = "; if the file holds many series, the option 'group' separates them";
  EXPECT_EQ(said(dates),
            "when: not read, because 1 row is earlier than the one before, first in line 22; "
            "sort the rows by it, or" +
                advice.substr(1));
  EXPECT_EQ(said(twice), "when: not read, because 30 rows have the date of the one before" + advice);
  expect_error(ErrorCode::bad_input,
               "s.csv:22: the dates of column \"when\" do not rise: \"2020-01-01\" is earlier than the row before",
               [&] { opened(dates, "when"); });
  expect_error(ErrorCode::bad_input,
               "s.csv: the dates of column \"when\" are descending, and a series is read from old to new: sort the "
               "rows by it",
               [&] { opened(falling); });
  std::vector<std::string> days;
  for (int i = 0; i < 28; ++i) days.push_back(fmt::format("2020-01-{:02}", i == 20 ? i : i + 1));
  EXPECT_EQ(opened(days)->reading().back(),
            "when: a row a day, with 2 irregular steps, none to 2 days, 1 row has the date of the "
            "one before; the day of the week is no input, because the training rows do not follow it");
}

TEST(Calendar, RowsOfAStreamGiveTheSameInputs) {
  const TemporaryFolder folder;
  const std::string text = days(1000, "/");
  const auto data = open_series(folder.write("s.csv", text), {.calendar = {.read = true}});
  const Model model({.width = 8, .blocks = 1}, data->description());
  model.save(folder.path("m"));
  const Model loaded = Model::load(folder.path("m"));
  Example example;
  data->next(1, 30, example);
  std::istringstream lines(text);
  std::string line;
  std::getline(lines, line);
  RowReader reader(loaded.data(), line, "-");
  std::vector<float> features(5);
  for (Index t = 0; t < 30; ++t) {
    std::getline(lines, line);
    ASSERT_TRUE(reader.read(line, features));
    for (Index i = 0; i < 5; ++i)
      EXPECT_EQ(features[static_cast<std::size_t>(i)], example.features[static_cast<std::size_t>(t * 5 + i)]) << t;
  }
  expect_error(ErrorCode::bad_input, "column \"when\": \"soon\" is no date in the form of training",
               [&] { reader.read("soon,1", features); });
  RowReader patient(loaded.data(), "when,x", "-", {.replace_bad = true});
  ASSERT_TRUE(patient.read("2020-01-07,1", features));
  const std::vector<float> before = features;
  ASSERT_TRUE(patient.read("soon,1", features));
  EXPECT_EQ(features, before);
  EXPECT_EQ(patient.findings().replaced.count, 1) << "one field, though it makes four inputs";
}

TEST(Calendar, DatesThatAreNoInputAreKeptToBeSaid) {
  const TemporaryFolder folder;
  std::string text = "when,x\n";
  for (int i = 0; i < 200; ++i) text += fmt::format("2024-{:02}-{:02},{}\n", 1 + i / 28, 1 + i % 28, i * i % 23);
  const std::string path = folder.write("s.csv", text);
  const SeriesOptions options{.calendar = {.read = true}};
  const auto data = open_series(path, options);
  const Model model({.width = 8, .blocks = 1}, data->description());
  model.save(folder.path("m"));
  const Model loaded = Model::load(folder.path("m"));
  EXPECT_EQ(loaded.data().series.row_dates.column, "when");
  std::vector<float> features(1);
  RowReader dated(loaded.data(), "when,x", "-");
  ASSERT_TRUE(dated.read("1970-01-03,1", features));
  EXPECT_EQ(dated.date(), 2.0 * day);
  ASSERT_TRUE(dated.read("1970-01-02,1", features)) << "earlier than the row before";
  EXPECT_EQ(dated.date(), day);
  expect_error(ErrorCode::bad_input, "-:4:1: column \"when\": \"soon\" is no date in the form of training",
               [&] { dated.read("soon,1", features); });
  RowReader bears(loaded.data(), "when,x", "-", {.replace_bad = true});
  ASSERT_TRUE(bears.read("1970-01-03,1", features));
  ASSERT_TRUE(bears.read("soon,1", features));
  EXPECT_EQ(bears.date(), std::nullopt);
  EXPECT_EQ(bears.findings().replaced.count, 0) << "the model does not read it";
  RowReader undated(loaded.data(), "x", "-");
  ASSERT_TRUE(undated.read("1", features));
  EXPECT_EQ(undated.date(), std::nullopt);
  const std::string values = folder.write("x.csv", "x\n1\n5\n2\n7\n3\n9\n1\n4\n8\n2\n6\n");
  const Model further = continue_from(loaded, *open_series({values}, options, &loaded.data()), 0.0);
  EXPECT_EQ(further.data().inputs.size(), 1u) << "of a file without dates";
}

TEST(Calendar, MaskedValuesAreMarked) {
  const TemporaryFolder folder;
  const auto data =
      open_series(folder.write("s.csv", "x,y\n1,5\n2,6\n,7\n4,8\n5,9\n6,1\n7,2\n8,3\n"), {.missing = Missing::mask});
  EXPECT_EQ(titles(*data), (std::vector<std::string>{"x", "y", "x (missing)"}));
  Example example;
  data->next(1, 4, example);
  EXPECT_EQ(example.features[2], 0.0f);
  EXPECT_EQ(example.features[8], 1.0f);
  EXPECT_EQ(example.features[6], example.features[3]) << "the value before";
  RowReader reader(data->description(), "x,y", "-");
  std::vector<float> features(3);
  ASSERT_TRUE(reader.read("2,6", features));
  EXPECT_EQ(features[2], 0.0f);
  ASSERT_TRUE(reader.read("NA,7", features));
  EXPECT_EQ(features[2], 1.0f);
}

TEST(Season, MustShowTwiceInTraining) {
  const TemporaryFolder folder;
  const std::string path = folder.write("s.csv", days(27));
  expect_error(ErrorCode::bad_input, "a season of 12 rows cannot be learnt from 22 training rows: it needs 24 or more",
               [&] { open_series(path, {.season = 12}); });
  EXPECT_EQ(open_series(path, {.season = 11})->training_steps(), 21);
}

TEST(Calendar, FeaturesOfDates) {
  const Column year{.name = "d", .feature = Feature::year_cosine};
  EXPECT_NEAR(year.normal(0.0), 1.0, 1e-12);
  EXPECT_NEAR(year.normal(182.5 * day), -1.0, 1e-12);
  EXPECT_NEAR(year.normal(-183.0 * day), std::cos(2 * std::numbers::pi * 182.0 / 365.0), 1e-12) << "of 1969";
  const Column hour{.name = "d", .feature = Feature::day_sine};
  EXPECT_NEAR(hour.normal(-18.0 * 3600.0), 1.0, 1e-12);
  EXPECT_TRUE(std::isnan(hour.normal(1e300)));
  EXPECT_TRUE(std::isnan(hour.normal(std::nan(""))));
  EXPECT_EQ(parse_feature("week_cosine"), Feature::week_cosine);
  expect_error(ErrorCode::invalid_argument, "feature must be one of value, missing, category, day_sine",
               [] { parse_feature("hour"); });
}

}  // namespace
}  // namespace penstock
