// Rows whose date cannot be read: an error that says where, or left out, in training and in rows later on; and dates
// around a change of clocks.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

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
using testing::HasSubstr;

/// 2023-01-01 and days later, of a year whose Februaries have 30 days if that is said.
std::string date_of(int days) {
  constexpr int lengths[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  int month = 0;
  for (; days >= lengths[month]; ++month) days -= lengths[month];
  return fmt::format("2023-{:02}-{:02}", month + 1, days + 1);
}

/// 200 days, of which `date` may change some; x is the number of the row, squared, modulo 17.
std::string table_of(const std::function<std::string(int)>& date = date_of) {
  std::string text = "when,x\n";
  for (int i = 0; i < 200; ++i) text += fmt::format("{},{}\n", date(i), i * i % 17);
  return text;
}

std::vector<std::string> texts_of(const std::vector<Message>& findings) {
  std::vector<std::string> texts;
  for (const Message& finding : findings) texts.push_back(finding.text());
  return texts;
}

SeriesOptions options_with(Undated undated) {
  SeriesOptions options = suggest_series();
  options.autoregression = false;
  options.transform = Transform::none;
  options.undated = undated;
  return options;
}

std::vector<float> features_of(const Dataset& data) {
  Example example;
  std::vector<float> all;
  for (Index i = 0; data.validation(i, 1, 40, example); ++i) {
    all.insert(all.end(), example.features.begin(), example.features.end());
  }
  return all;
}

TEST(Undated, IsRefusedWithLineAndValueUnlessItIsToBeLeftOut) {
  const TemporaryFolder folder;
  for (const std::string bad : {"2023-02-30", "Total", "", "NaT", "31.12"}) {
    SCOPED_TRACE(bad);
    const std::string path = folder.write("s.csv", table_of([&](int i) { return i == 50 ? bad : date_of(i); }));
    expect_error(ErrorCode::bad_input, fmt::format("s.csv:52: column \"when\": \"{}\" is no date", bad),
                 [&] { open_series(path, options_with(Undated::refuse)); });
    const auto data = open_series(path, options_with(Undated::drop));
    EXPECT_THAT(texts_of(data->reading()), testing::Contains(HasSubstr(fmt::format("\"{}\" in line 52", bad))));
    EXPECT_EQ(data->description().series.row_dates.irregular, Irregular::fill) << "a day is missing now";
    EXPECT_EQ(data->training_steps() + data->held_out_steps() + 1, 200);
  }
}

TEST(Undated, WhatIsLeftOutMightNotHaveBeenThere) {
  const TemporaryFolder folder;
  std::string with = table_of(), without = with;
  with += "Total,\n,1\n";
  with.insert(with.find("2023-03-01"), "Sum,999999\n");
  const auto expected = open_series(folder.write("without.csv", without), options_with(Undated::refuse));
  const auto found = open_series(folder.write("with.csv", with), options_with(Undated::drop));
  EXPECT_EQ(features_of(*found), features_of(*expected));
  EXPECT_EQ(found->description().inputs[0].mean, expected->description().inputs[0].mean);
  EXPECT_THAT(texts_of(found->reading()),
              testing::Contains(HasSubstr("3 rows without a readable date in when left out")));
  expect_error(ErrorCode::bad_input, "with.csv:61: column \"when\": \"Sum\" is no date, unlike the others (", [&] {
    SeriesOptions options = options_with(Undated::refuse);
    options.missing = Missing::carry;
    open_series(folder.write("with.csv", with), options);
  });
}

TEST(Undated, OfSeveralSeriesAndOfDatesThatAreNumbers) {
  const TemporaryFolder folder;
  std::string shops = "when,shop,x\n", digits = "date,x\n", excel = "date,x\n";
  for (int i = 0; i < 60; ++i) {
    for (const char* shop : {"a", "b"}) shops += fmt::format("{},{},{}\n", date_of(i), shop, i * i % 17);
    digits += fmt::format("{},{}\n", i == 30 ? "20230230" : fmt::format("2023{:02}{:02}", i / 28 + 1, i % 28 + 1),
                          i * i % 17);
    excel += fmt::format("{},{}\n", i == 30 ? "Total" : std::to_string(45000 + i), i * i % 17);
  }
  shops += "Total,,1200\n";
  SeriesOptions grouped = options_with(Undated::drop);
  grouped.group = "shop";
  const auto data = open_series(folder.write("shops.csv", shops), grouped);
  EXPECT_EQ(data->description().series.groups.size(), 2u);
  for (const auto& [name, text] : {std::pair("digits.csv", digits), std::pair("excel.csv", excel)}) {
    SCOPED_TRACE(name);
    const std::string path = folder.write(name, text);
    expect_error(ErrorCode::bad_input, ":32: column \"date\"",
                 [&] { open_series(path, options_with(Undated::refuse)); });
    EXPECT_EQ(open_series(path, options_with(Undated::drop))->description().targets.size(), 1u);
  }
}

TEST(Undated, TheFormIsThatOfMostDates) {
  const TemporaryFolder folder;
  // The day comes first, as days above 12 show, and one is none.
  std::string text = "when,x\n";
  for (int i = 0; i < 60; ++i) {
    const std::string date = date_of(i);
    text += fmt::format("{}/{}/2023,{}\n", i == 40 ? "31" : date.substr(8), date.substr(5, 2), i * i % 17);
  }
  const auto data = open_series(folder.write("s.csv", text), options_with(Undated::drop));
  EXPECT_THAT(texts_of(data->reading()), testing::Contains(HasSubstr("\"31/02/2023\" in line 42")));
  EXPECT_EQ(data->description().series.row_dates.form, DateForm::day_first);
  EXPECT_EQ(data->description().series.row_dates.step, 86400.0);
}

TEST(Undated, AColumnWhoseFieldsAllAreDatesGoesFirst) {
  const TemporaryFolder folder;
  std::string text = "delivered,when,x\n";
  for (int i = 0; i < 100; ++i) {
    text += fmt::format("{},{},{}\n", i % 20 == 7 ? "" : date_of(i + 3), date_of(i), i * i % 17);
  }
  const auto data = open_series(folder.write("s.csv", text), options_with(Undated::refuse));
  EXPECT_THAT(
      texts_of(data->reading()),
      testing::Contains(testing::AllOf(testing::StartsWith("when: a row a day"),
                                       HasSubstr("\"delivered\" is not read, because \"\" in line 9 is no date"))));
  // Few dates among other texts are no calendar.
  std::string notes = "note,x\n";
  for (int i = 0; i < 60; ++i) notes += fmt::format("{},{}\n", i % 3 == 0 ? date_of(i) : "as before", i * i % 17);
  EXPECT_FALSE(open_series(folder.write("n.csv", notes), options_with(Undated::refuse))->reading().empty());
}

/// The rows that a model reads of a text, by number of answered rows.
Index rows_read(const std::string& text, const DataDescription& data, const RowFormat& format = {}) {
  Rows rows(Table{"rows.csv", text}, data, {.keep = {}, .format = format});
  Index count = 0;
  for (auto kind = rows.next(); kind != Rows::Kind::end; kind = rows.next()) count += kind == Rows::Kind::row ? 1 : 0;
  return count;
}

TEST(Undated, RowsLaterOnAreTreatedAsThoseOfTraining) {
  const TemporaryFolder folder;
  const std::string path = folder.write("s.csv", table_of());
  const DataDescription strict = open_series(path, options_with(Undated::refuse))->description();
  const DataDescription lenient = open_series(path, options_with(Undated::drop))->description();
  EXPECT_EQ(lenient.series.undated, Undated::drop);
  const std::string rows = "when,x\n2023-08-01,1\n2023-08-02,2\nTotal,3\n2023-08-03,3\n";
  for (DataDescription data : {strict, lenient}) {
    SCOPED_TRACE(to_string(data.series.undated));
    for (const Irregular irregular : {Irregular::ignore, Irregular::fill, Irregular::elapsed}) {
      data.series.row_dates.irregular = irregular;
      EXPECT_EQ(rows_read(rows, data, {.undated = Undated::drop}), 3);
      expect_error(ErrorCode::bad_input, "rows.csv:4:1: column \"when\": \"Total\" is no date in the form of training",
                   [&] { rows_read(rows, data, {.undated = Undated::refuse}); });
    }
    data.series.row_dates.irregular = Irregular::ignore;
    EXPECT_EQ(rows_read("when,x\nMonday,1\nTuesday,2\n", data), 2) << "dates are not needed, and there are none";
  }
  EXPECT_EQ(rows_read(rows, lenient), 3);
  expect_error(ErrorCode::bad_input, "Total", [&] { rows_read(rows, strict); });
}

TEST(Undated, RowsToTrainFurtherOnAreTreatedAlike) {
  const TemporaryFolder folder;
  const std::string good = folder.write("good.csv", table_of());
  const std::string bad = folder.write("bad.csv", table_of([](int i) { return i == 50 ? "Total" : date_of(i); }));
  for (const Irregular irregular : {Irregular::ignore, Irregular::fill, Irregular::elapsed}) {
    SeriesOptions options = options_with(Undated::refuse);
    options.irregular = irregular;
    options.calendar.cycles = {};
    const DataDescription origin = open_series(good, options)->description();
    expect_error(ErrorCode::bad_input, "bad.csv:52: column \"when\": \"Total\" is no date",
                 [&] { open_series({bad}, options, &origin); });
    options.undated = Undated::drop;
    const auto further = open_series({bad}, options, &origin);
    EXPECT_EQ(further->training_steps() + further->held_out_steps() + 1, irregular == Irregular::fill ? 200 : 199);
  }
}

TEST(Undated, WithoutDatesNothingCanBeDroppedByThem) {
  const TemporaryFolder folder;
  SeriesOptions options = options_with(Undated::drop);
  const std::string none = folder.write("n.csv", "x,y\n1,5\n2,6\n5,7\n4,8\n5,9\n6,1\n7,2\n8,3\n");
  expect_error(ErrorCode::invalid_argument, "undated: ", [&] { open_series(none, options); });
  options.calendar.read = false;
  options.irregular = Irregular::ignore;
  const std::string dated = folder.write("s.csv", table_of());
  expect_error(ErrorCode::invalid_argument, "undated: rows can be dropped by their dates only if dates are read",
               [&] { open_series(dated, options); });
  // A column that is named is treated like one that was found.
  options = options_with(Undated::refuse);
  options.calendar.column = "when";
  const std::string bad = folder.write("b.csv", table_of([](int i) { return i == 50 ? "" : date_of(i); }));
  expect_error(ErrorCode::bad_input, "b.csv:52: column \"when\": \"\" is no date", [&] { open_series(bad, options); });
  options.undated = Undated::drop;
  EXPECT_EQ(open_series(bad, options)->description().series.undated, Undated::drop);
}

TEST(Undated, AModelKeepsTheChoice) {
  const TemporaryFolder folder;
  DataDescription data = open_series(folder.write("s.csv", table_of()), options_with(Undated::drop))->description();
  ModelSpec spec;
  spec.width = 8;
  const std::string path = folder.path("m.safetensors");
  Model(spec, data).save(path);
  EXPECT_EQ(Model::load(path).data().series.undated, Undated::drop);
}

/// Rows from a Saturday on, until the month ends, at times as a clock shows them: the hour from 2:00 on is not there on
/// 26 March 2023, and there twice on 29 October.
std::string by_clock(bool spring, int minutes) {
  std::string text = "when,x\n";
  const int first = spring ? 18 : 21, change = 8 * 1440 + (spring ? 120 : 180);
  for (int row = 0;; ++row) {
    const int passed = row * minutes, shown = passed + (passed < change ? 0 : spring ? 60 : -60);
    if (first + shown / 1440 > 31) return text;
    text += fmt::format("2023-{}-{}T{:02}:{:02},{}\n", spring ? "03" : "10", first + shown / 1440, shown / 60 % 24,
                        shown % 60, row * row % 17);
  }
}

TEST(Undated, AnHourThatAClockSkipsOrRepeatsIsNone) {
  const TemporaryFolder folder;
  for (const bool spring : {true, false}) {
    for (const int minutes : {15, 30, 60}) {
      SCOPED_TRACE(fmt::format("{} {}", spring, minutes));
      const std::string text = by_clock(spring, minutes);
      const auto data = open_series(folder.write("s.csv", text), options_with(Undated::refuse));
      const RowDates& dates = data->description().series.row_dates;
      EXPECT_EQ(data->training_steps() + data->held_out_steps() + 2, std::ranges::count(text, '\n'));
      EXPECT_EQ(dates.irregular, Irregular::ignore);
      for (const Message& each : data->reading()) {
        const std::string finding = each.text();
        EXPECT_THAT(finding, testing::Not(HasSubstr("missing")));
        EXPECT_THAT(finding, testing::Not(HasSubstr("differ")));
        EXPECT_THAT(finding, testing::Not(HasSubstr("earlier")));
      }
    }
  }
}

TEST(Undated, AnHourThatIsMissingAtAnotherTimeIsMissing) {
  constexpr double day = 86400.0, hour = 3600.0;
  const RowDates hourly{.irregular = Irregular::fill, .column = "when", .step = hour};
  const double sunday = day * 19442.0;  // 26 March 2023
  EXPECT_EQ(hourly.missing_between(sunday + 1.0 * hour, sunday + 3.0 * hour), 0.0);
  EXPECT_TRUE(hourly.is_regular(sunday + 1.0 * hour, sunday + 3.0 * hour));
  EXPECT_TRUE(hourly.between(sunday + 1.0 * hour, sunday + 3.0 * hour).empty());
  // Among several missing hours, the one that did not exist, from 2:00 on, does not count.
  EXPECT_EQ(hourly.between(sunday + 1.0 * hour, sunday + 4.0 * hour), (std::vector{sunday + 3.0 * hour}));
  EXPECT_EQ(hourly.between(sunday - 1.0 * hour, sunday + 5.0 * hour),
            (std::vector{sunday, sunday + 1.0 * hour, sunday + 3.0 * hour, sunday + 4.0 * hour}));
  EXPECT_EQ(hourly.missing_between(sunday + 3.0 * hour, sunday + 6.0 * hour), 2.0) << "behind the change";
  EXPECT_EQ(hourly.missing_between(sunday - 1.0 * hour, sunday + 1.0 * hour), 0.0) << "where clocks change at midnight";
  EXPECT_EQ(hourly.missing_between(sunday - 40.0 * hour, sunday + 10.0 * hour), 49.0) << "a gap of days";
  const RowDates quarters{.irregular = Irregular::fill, .column = "when", .step = 0.25 * hour};
  EXPECT_EQ(quarters.between(sunday + 1.5 * hour, sunday + 3.25 * hour),
            (std::vector{sunday + 1.75 * hour, sunday + 3.0 * hour}));
  const RowDates slow{.irregular = Irregular::fill, .column = "when", .step = 6.0 * hour};
  EXPECT_EQ(slow.missing_between(sunday - 6.0 * hour, sunday + 12.0 * hour), 2.0);
  EXPECT_EQ(hourly.missing_between(sunday + 9.0 * hour, sunday + 11.0 * hour), 1.0) << "by day";
  EXPECT_EQ(hourly.missing_between(sunday - 23.0 * hour, sunday - 21.0 * hour), 1.0) << "on Saturday";
  EXPECT_EQ(hourly.missing_between(sunday - 6.0 * day, sunday - 6.0 * day + 2.0 * hour), 1.0) << "on Monday";
  EXPECT_EQ(hourly.missing_between(sunday - 7.0 * day, sunday - 7.0 * day + 2.0 * hour), 1.0) << "a week before";
  EXPECT_EQ(hourly.seconds_between(sunday + 217.0 * day + 2.0 * hour, sunday + 217.0 * day + 2.0 * hour), hour)
      << "29 October";
  EXPECT_EQ(hourly.seconds_between(sunday + 10.0 * hour, sunday + 10.0 * hour), 0.0);
}

}  // namespace
}  // namespace penstock
