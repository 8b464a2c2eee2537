// Rows whose dates are not evenly apart: what is found out about them, and the same inputs from rows later on.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <sstream>

#include "penstock/data.h"
#include "penstock/data/row_steps.h"
#include "penstock/forecast/score.h"
#include "penstock/model.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace penstock {
namespace {

using test::expect_error;
using test::TemporaryFolder;

constexpr double day = 86400.0;

/// "2020-01-06" and days later, which is a Monday.
std::string date_of(int days) {
  using namespace std::chrono;
  const year_month_day date{sys_days{year{2020} / January / 6} + std::chrono::days{days}};
  return fmt::format("{}-{:02}-{:02}", static_cast<int>(date.year()), static_cast<unsigned>(date.month()),
                     static_cast<unsigned>(date.day()));
}

/// Rows of those of so many days that are there.
std::string table_of(int days, const std::function<bool(int)>& is_there) {
  std::string text = "when,x\n";
  for (int i = 0; i < days; ++i) {
    if (is_there(i)) text += fmt::format("{},{}\n", date_of(i), i * i % 17);
  }
  return text;
}

std::string with_gaps() {
  return table_of(60, [](int i) { return i != 10 && i != 11 && i != 30; });
}

std::string at_random_dates() {
  return table_of(150, [](int i) { return i * i % 7 < 3; });
}

TEST(Irregular, WhatSuitsTheDates) {
  const TemporaryFolder folder;
  const auto chosen = [&](const std::string& text) {
    return open_series(folder.write("s.csv", text), {.irregular = Irregular::automatic})
        ->description()
        .series.row_dates;
  };
  const RowDates gaps = chosen(with_gaps());
  EXPECT_EQ(gaps.irregular, Irregular::fill);
  EXPECT_EQ(gaps.column, "when");
  EXPECT_EQ(gaps.step, day);
  EXPECT_EQ(chosen(at_random_dates()).irregular, Irregular::elapsed);
  EXPECT_EQ(chosen(table_of(60, [](int) { return true; })).irregular, Irregular::ignore) << "there is nothing to do";
  EXPECT_EQ(chosen(table_of(60, [](int i) { return i % 7 < 5 && i != 16; })).irregular, Irregular::ignore)
      << "working days but for a holiday";
}

TEST(Irregular, MissingRowsArePutIn) {
  const TemporaryFolder folder;
  const auto data = open_series(folder.write("s.csv", with_gaps()), {.irregular = Irregular::fill});
  EXPECT_EQ(data->training_steps() + data->held_out_steps() + 1, 60);
  ASSERT_EQ(data->description().inputs.size(), 2u);
  EXPECT_EQ(data->description().inputs[1].title(), "x (missing)");
  Example example;
  data->next(1, 40, example);
  for (Index t = 0; t < 40; ++t) {
    const bool lacks = t == 10 || t == 11 || t == 30;
    EXPECT_EQ(example.features[static_cast<std::size_t>(2 * t + 1)], lacks ? 1.0f : 0.0f) << t;
    if (lacks) {
      EXPECT_EQ(example.features[static_cast<std::size_t>(2 * t)],
                example.features[static_cast<std::size_t>(2 * t - 2)]);
      EXPECT_EQ(example.weights[static_cast<std::size_t>(t - 1)], 0.0f) << "is not asked for";
    } else if (t > 0) {
      EXPECT_EQ(example.weights[static_cast<std::size_t>(t - 1)], 1.0f);
    }
  }
  const std::vector<Message> reading = data->reading();
  ASSERT_GE(reading.size(), 2u);
  EXPECT_EQ(reading[reading.size() - 2],
            "when: a row a day, with 2 irregular steps, a day to 3 days; 3 missing rows inserted "
            "as missing values");
  EXPECT_EQ(reading.back(), "3 missing values replaced by the last one, and left out of the loss and scores");
}

TEST(Irregular, ElapsedTimeIsAnInput) {
  const TemporaryFolder folder;
  const auto data = open_series(folder.write("s.csv", with_gaps()), {.irregular = Irregular::elapsed});
  ASSERT_EQ(data->description().inputs.size(), 2u);
  EXPECT_EQ(data->description().inputs[1].title(), "when (elapsed)");
  Example example;
  data->next(1, 20, example);
  for (Index t = 0; t < 20; ++t) {
    const float expected = t == 10 ? std::log2(1.0f + 3.0f) - 1.0f : 0.0f;  // three days after the row before
    EXPECT_EQ(example.features[static_cast<std::size_t>(2 * t + 1)], expected) << t;
  }
}

/// Returns the features that a reader makes of all rows of a table, missing rows included.
std::vector<float> read_rows(const DataDescription& data, const std::string& text) {
  std::istringstream lines(text);
  std::string line;
  std::getline(lines, line);
  RowReader reader(data, line, "-");
  std::vector<float> row(data.inputs.size()), all;
  while (std::getline(lines, line)) {
    EXPECT_TRUE(reader.read(line, row));
    all.insert(all.end(), reader.missing_rows().begin(), reader.missing_rows().end());
    all.insert(all.end(), row.begin(), row.end());
  }
  return all;
}

TEST(Irregular, RowsOfAStreamGiveTheSameInputs) {
  const TemporaryFolder folder;
  for (const Irregular irregular : {Irregular::fill, Irregular::elapsed}) {
    for (const std::string& text : {with_gaps(), at_random_dates()}) {
      const auto data = open_series(folder.write("s.csv", text), {.calendar = {.read = true}, .irregular = irregular});
      const Model model({.width = 8, .blocks = 1}, data->description());
      model.save(folder.path("m"));
      const DataDescription kept = Model::load(folder.path("m")).data();
      EXPECT_EQ(kept.series.row_dates.irregular, irregular);
      Example example;
      const Index steps = data->training_steps();
      data->next(1, steps, example);
      const std::vector<float> read = read_rows(kept, text);
      ASSERT_GE(read.size(), example.features.size());
      for (std::size_t i = 0; i < example.features.size(); ++i) EXPECT_EQ(read[i], example.features[i]) << i;
    }
  }
}

TEST(Irregular, ReaderRefusesWhatCannotBe) {
  const TemporaryFolder folder;
  const auto described = [&](Irregular irregular) {
    return open_series(folder.write("s.csv", with_gaps()), {.irregular = irregular})->description();
  };
  std::vector<float> row(2);
  const DataDescription fill = described(Irregular::fill);
  RowReader strict(fill, "when,x", "f");
  strict.read("2021-03-01,1", row);
  expect_error(ErrorCode::bad_input, "f:3:1: column \"when\": \"2021-02-27\" is earlier than the row before",
               [&] { strict.read("2021-02-27,1", row); });
  expect_error(ErrorCode::bad_input, "\"3021-02-27\" comes after 365239 missing rows, too many to insert",
               [&] { strict.read("3021-02-27,1", row); });
  expect_error(ErrorCode::bad_input, "f:1:1: column \"when\" says when a row was, but the header has only",
               [&] { RowReader(fill, "x", "f"); });
  RowReader patient(fill, "when,x", "f", {.replace_bad = true});
  patient.read("2021-03-01,1", row);
  patient.read("2021-02-27,1", row);
  EXPECT_EQ(patient.findings().replaced.count, 1);
  patient.read("2021-02-28,1", row);
  EXPECT_EQ(patient.findings().replaced.count, 1) << "what was wrong says nothing of the next row";
  patient.read("2021-03-02,1", row);
  EXPECT_EQ(patient.missing_rows().size(), 2u) << "one row of two inputs";

  std::map<std::string, RowReader::LastRow> last = patient.last_rows();
  ASSERT_EQ(last.size(), 1u);
  RowReader next(fill, "when,x", "f");
  next.set_last_rows(last);
  next.read("2021-03-06,1", row);
  EXPECT_EQ(next.missing_rows().size(), 6u);
  next.read("2021-03-07,1", row);
  EXPECT_TRUE(next.missing_rows().empty());
  next.restart();
  next.read("2021-01-01,1", row);
  EXPECT_TRUE(next.missing_rows().empty()) << "behind no row, and earlier than none";
}

TEST(Irregular, RefusedRowsAreNamed) {
  const TemporaryFolder folder;
  const std::string path = folder.write("s.csv", with_gaps());
  expect_error(ErrorCode::bad_input,
               "s.csv:12: column \"when\": \"2020-01-18\" is not a day after the row before; the option 'irregular' "
               "(ignore, elapsed or fill) accepts such rows",
               [&] { open_series(path, {.irregular = Irregular::refuse}); });
  const std::string even = table_of(40, [](int) { return true; });
  const DataDescription data =
      open_series(folder.write("e.csv", even), {.irregular = Irregular::refuse})->description();
  RowReader reader(data, "when,x", "f");
  std::vector<float> row(1);
  reader.read("2021-03-01,1", row);
  expect_error(ErrorCode::bad_input, "is not one step after the row before, and training refused such rows",
               [&] { reader.read("2021-03-03,1", row); });
  const std::string mixed = folder.write("m.csv", "when,x\n2020-01-01,1\n2020-01-03,2\n2020-01-02,3\n2020-01-04,1\n");
  expect_error(ErrorCode::bad_input,
               "m.csv:4: the dates of column \"when\" do not rise: \"2020-01-02\" is earlier than the row before",
               [&] { open_series(mixed, {.irregular = Irregular::fill}); });
  expect_error(ErrorCode::invalid_argument, "irregular: ", [&] {
    open_series(folder.write("n.csv", "x\n1\n2\n3\n4\n5\n6\n7\n"), {.irregular = Irregular::elapsed});
  });
}

TEST(Irregular, DatesBetweenTwo) {
  const RowDates days{.irregular = Irregular::fill, .column = "d", .step = day};
  EXPECT_EQ(days.between(0.0, 3.0 * day), (std::vector<double>{day, 2.0 * day}));
  EXPECT_TRUE(days.between(0.0, day + 3600.0).empty()) << "a clock that was put back";
  EXPECT_TRUE(days.between(0.0, 0.0).empty());
  RowDates working = days;
  working.working_days = true;
  // 1970 began on a Thursday.
  EXPECT_TRUE(working.between(day, 4.0 * day).empty()) << "Friday to Monday";
  EXPECT_EQ(working.between(0.0, 5.0 * day), (std::vector<double>{day, 4.0 * day})) << "Thursday to Tuesday";
  EXPECT_TRUE(working.is_regular(day, 4.0 * day));
  EXPECT_FALSE(working.is_regular(day, 5.0 * day));
  const RowDates months{.irregular = Irregular::fill, .column = "d", .step = 365.25 * day / 12.0};
  EXPECT_TRUE(months.is_regular(0.0, 28.0 * day));
  EXPECT_EQ(months.missing_between(0.0, 59.0 * day), 1.0);
  EXPECT_EQ(months.missing_between(0.0, 3652.0 * day), 119.0) << "ten years";
}

/// Returns the message of RowSteps about rows after so many seconds each, for a model with these dates.
std::string mistake(const RowDates& usual, const std::vector<double>& apart) {
  RowSteps steps(usual);
  double date = 1'577'836'800.0;  // 2020-01-01
  std::string said;
  for (const double step : apart) {
    if (said.empty()) said = steps.see(date, date + step);
    date += step;
  }
  return said;
}

TEST(Irregular, RowsAtAnotherStepThanWasLearnt) {
  const RowDates daily{.irregular = Irregular::ignore, .column = "when", .step = day};
  const RowDates monthly{.irregular = Irregular::fill, .column = "when", .step = 365.25 * day / 12.0};
  const std::vector<double> months = {31 * day, 29 * day, 31 * day, 30 * day, 31 * day, 30 * day, 31 * day};
  EXPECT_EQ(mistake(daily, std::vector<double>(5, 3600.0)),
            "rows are an hour apart, and the model learnt rows a day apart: give it rows a day apart, such as means or "
            "sums of these, or train a model on rows an hour apart");
  EXPECT_EQ(mistake(daily, months),
            "rows are a month apart, and the model learnt rows a day apart: train a model on rows a month apart");
  EXPECT_EQ(mistake(monthly, std::vector<double>(9, 28 * day)), "") << "four weeks are a month";
  EXPECT_EQ(mistake(monthly, months), "");
  EXPECT_NE(mistake(monthly, std::vector<double>(9, day)), "");
  EXPECT_NE(mistake(monthly, std::vector<double>(9, 91 * day)), "") << "quarters";
  EXPECT_EQ(mistake(daily, std::vector<double>(4, 3600.0)), "") << "too few to tell";
  // Rows are missing, or were taken at any time.
  EXPECT_EQ(mistake(daily, {2 * day, 2 * day, 2 * day, day, 2 * day, 2 * day, 2 * day}), "");
  EXPECT_EQ(mistake(daily, {2 * day, 5 * day, 3 * day, 4 * day, 7 * day, 2 * day, 6 * day}), "");
  EXPECT_EQ(mistake(daily, std::vector<double>(9, 0.0)), "") << "series below each other";
  // Nothing is known, or the model reads how far rows are apart.
  EXPECT_EQ(mistake({}, std::vector<double>(9, 3600.0)), "");
  RowDates any = daily;
  any.irregular = Irregular::elapsed;
  EXPECT_EQ(mistake(any, std::vector<double>(9, 3600.0)), "");
}

TEST(Irregular, WhatIsNotKnownIsNotScored) {
  DataDescription data;
  data.task = Task::forecast;
  data.inputs = data.targets = {{.name = "x"}};
  data.series.season = 1;
  const double none = std::nan("");
  ForecastScorer scorer(data), without(data);
  for (const double value : {1.0, 2.0, none, 4.0}) scorer.add(std::vector{value}, std::vector{3.0});
  const ColumnScore score = scorer.scores().at(0);
  EXPECT_EQ(score.scored, 2);
  EXPECT_DOUBLE_EQ(score.model.mae, 1.0);
  EXPECT_DOUBLE_EQ(score.rivals.at(0).errors.mae, 1.5) << "the last known value";
  for (const double value : {1.0, none, none}) without.add(std::vector{value}, std::vector{3.0});
  EXPECT_TRUE(without.scores().empty());
}

}  // namespace
}  // namespace penstock
