// Columns that count or name rows: left out unless somebody names them.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "penstock/data.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace penstock {
namespace {

using test::TemporaryFolder;
using testing::ElementsAre;
using testing::HasSubstr;

/// A column of this name beside one of values, without a step of one size.
std::string table_of(const std::string& name, const std::function<std::string(int)>& value, int rows = 60) {
  std::string text = name + ",level\n";
  for (int i = 0; i < rows; ++i) text += fmt::format("{},{}\n", value(i), i * i % 17);
  return text;
}

std::vector<std::string> names(const std::vector<Column>& columns) {
  std::vector<std::string> all;
  for (const Column& column : columns) all.push_back(column.name);
  return all;
}

/// The inputs; all of them are targets as well.
std::vector<std::string> inputs_of(const std::string& text, const SeriesOptions& options = {}) {
  const TemporaryFolder folder;
  const auto data = open_series(folder.write("s.csv", text), options);
  if (options.targets.empty() && options.known.empty()) {
    EXPECT_EQ(names(data->description().targets), names(data->description().inputs));
  }
  return names(data->description().inputs);
}

std::string reading_of(const std::string& text) {
  const TemporaryFolder folder;
  std::string all;
  for (const Message& finding : open_series(folder.write("s.csv", text))->reading()) all += finding.text() + "\n";
  return all;
}

TEST(Counters, AreLeftOutAndSaid) {
  const auto plain = [](int i) { return fmt::format("{}", i); };
  const auto tenths = [](int i) { return fmt::format("{:.1f}", 0.1 * i); };
  const auto down = [](int i) { return fmt::format("{}", 5000 - 25 * i); };
  for (const auto& value : {std::function<std::string(int)>(plain), {tenths}, {down}}) {
    EXPECT_THAT(inputs_of(table_of("any", value)), ElementsAre("level"));
  }
  EXPECT_THAT(reading_of(table_of("any", plain)), HasSubstr("any (an index: 1 more in each row)"));
  EXPECT_THAT(reading_of(table_of("any", down)), HasSubstr("any (an index: 25 less in each row)"));
  // Some rows were deleted, or the clock is no regular one.
  const auto gaps = [](int i) { return fmt::format("{}", i + i / 7); };
  EXPECT_THAT(reading_of(table_of("time", gaps)), HasSubstr("time (numbers its rows)"));
  EXPECT_THAT(reading_of(table_of("Row", gaps)), HasSubstr("Row (numbers its rows)"));
  // Dates in a form that is not read.
  const auto short_dates = [](int i) { return fmt::format("23{:02}{:02}", 1 + i / 28, 1 + i % 28); };
  EXPECT_THAT(reading_of(table_of("date", short_dates)), HasSubstr("date (numbers its rows)"));
  // Whole numbers may leave some out, wherever these stand.
  const auto one_gap = [](int i) { return fmt::format("{}", i < 40 ? i : i + 50); };
  const auto first_gap = [](int i) { return fmt::format("{}", i == 0 ? 0 : 10 * i + 5000); };
  const auto down_and_gaps = [](int i) { return fmt::format("{}", 9000 - 25 * (i + i / 20)); };
  EXPECT_THAT(reading_of(table_of("any", one_gap)), HasSubstr("any (an index: 1 more in each row but for 1 gap)"));
  EXPECT_THAT(reading_of(table_of("any", first_gap)), HasSubstr("any (an index: 10 more in each row but for 1 gap)"));
  EXPECT_THAT(reading_of(table_of("any", down_and_gaps)),
              HasSubstr("any (an index: 25 less in each row but for 2 gaps)"));
  const auto drawn = [](int i) { return fmt::format("{}", 1000 + i * 7919 % 613); };
  for (const char* name : {"id", "customer_id", "storeId", "Shop ID", "userID"}) {
    EXPECT_THAT(reading_of(table_of(name, drawn)), HasSubstr(fmt::format("{} (an identifier)", name)));
  }
}

TEST(Counters, ValuesAreNone) {
  const auto read = [](const std::string& name, const std::function<std::string(int)>& value) {
    EXPECT_THAT(inputs_of(table_of(name, value)), ElementsAre(name, "level"));
  };
  read("x", [](int i) { return fmt::format("{}", i + i / 15); });              // lacks more than one row in 20
  read("x", [](int i) { return fmt::format("{}", i == 59 ? 20 : i); });        // goes back
  read("x", [](int i) { return fmt::format("{}", i == 59 ? 58 : i); });        // stands still
  read("x", [](int i) { return fmt::format("{}", 2 * i - i / 59); });          // the last step is no multiple
  read("x", [](int i) { return fmt::format("{:.1f}", 0.1 * (i + i / 30)); });  // a level that rises slowly
  read("x", [](int i) { return fmt::format("{}", 5 * i + i * i % 3); });       // a meter
  read("x", [](int i) { return fmt::format("{}", i + i / 7); });               // rises, but its name says nothing
  read("time", [](int i) { return fmt::format("{}", i * 13 % 24); });          // does not rise
  read("id", [](int i) { return fmt::format("{}.5", i * 13 % 24); });          // is no whole number
  for (const char* name : {"bid", "PAID", "humid", "uptime", "steps_taken"}) {
    read(name, [](int i) { return fmt::format("{}", i + i / 7); });
  }
  EXPECT_THAT(inputs_of(table_of(
                  "x", [](int i) { return fmt::format("{}", i); }, 12)),
              ElementsAre("x", "level"))
      << "too few rows to tell";
}

TEST(Counters, MayBeAskedFor) {
  const std::string text = table_of("time", [](int i) { return fmt::format("{}", i); });
  EXPECT_THAT(inputs_of(text, {.inputs = {"time", "level"}}), ElementsAre("time", "level"));
  EXPECT_THAT(inputs_of(text, {.targets = {"time"}}), ElementsAre("time", "level"));
  EXPECT_THAT(inputs_of(text, {.known = {"time"}}), testing::Contains("time"));
  EXPECT_THAT(inputs_of(text, {.targets = {"level"}}), ElementsAre("level"));
  // Nothing else is there to be forecast.
  std::string alone = "time\n";
  for (int i = 0; i < 60; ++i) alone += fmt::format("{}\n", i);
  EXPECT_THAT(inputs_of(alone), ElementsAre("time"));
}

TEST(Counters, BeginAnewInEachSeriesAndFile) {
  const TemporaryFolder folder;
  std::string sorted = "shop,month,sales\n", mixed = sorted;
  for (const char* shop : {"a", "b"}) {
    for (int i = 0; i < 30; ++i) sorted += fmt::format("{},{},{}\n", shop, i, i * i % 17);
  }
  for (int i = 0; i < 30; ++i) {
    for (const char* shop : {"a", "b"}) mixed += fmt::format("{},{},{}\n", shop, i, i * i % 17);
  }
  for (const std::string& text : {sorted, mixed}) {
    EXPECT_THAT(inputs_of(text, {.group = "shop"}), ElementsAre("sales"));
  }
  const auto count = [](int i) { return fmt::format("{}", i); };
  const Sources files = {folder.write("a.csv", table_of("n", count)), folder.write("b.csv", table_of("n", count))};
  EXPECT_THAT(names(open_series(files)->description().inputs), ElementsAre("level"));
}

TEST(Counters, OfLabelledSequencesGiveTheLabelAway) {
  const TemporaryFolder folder;
  std::string text = "sequence,label,row,t,x\n";
  int row = 0;
  for (int sequence = 0; sequence < 20; ++sequence) {
    for (int t = 0; t < 5; ++t) {
      text += fmt::format("{},{},{},{},{}\n", sequence, sequence / 10, row++, t, sequence * t * t % 7);
    }
  }
  const auto data = open_labelled(folder.write("l.csv", text));
  EXPECT_THAT(names(data->description().inputs), ElementsAre("t", "x")) << "t counts the steps of each";
}

}  // namespace
}  // namespace penstock
