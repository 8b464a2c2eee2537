#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "data/column_scaling.h"
#include "data/table/csv.h"
#include "data/table/open_table.h"
#include "penstock/data.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace penstock::data {
namespace {

using test::expect_error;
using test::TemporaryFolder;
using Records = std::vector<std::vector<std::string>>;

Records parse(std::string_view text, char delimiter = ',') {
  CsvReader reader(text, delimiter, "f.csv");
  Records records;
  std::vector<Field> fields;
  while (reader.next(fields)) {
    records.emplace_back();
    for (const auto& field : fields) records.back().push_back(field.text());
  }
  return records;
}

TEST(Csv, LineEnds) {
  const Records expected = {{"a", "b"}, {"1", "2"}};
  for (const char* text : {"a,b\n1,2", "a,b\n1,2\n", "a,b\r\n1,2\r\n", "a,b\r1,2\r",
                           "\xef\xbb\xbf"
                           "a,b\n1,2\n",
                           "a,b\n1,2\n\n\r\n  \t\n"}) {
    EXPECT_EQ(parse(text), expected) << text;
  }
  EXPECT_EQ(parse(""), Records{});
  EXPECT_EQ(parse("\n\n"), Records{});
  EXPECT_EQ(parse("\xef\xbb\xbf"), Records{});
}

TEST(Csv, FieldsAndQuotes) {
  EXPECT_EQ(parse(",,\n"), (Records{{"", "", ""}}));
  EXPECT_EQ(parse("a,\n,b"), (Records{{"a", ""}, {"", "b"}}));
  EXPECT_EQ(parse(" a b ,\tc\t"), (Records{{"a b", "c"}}));
  EXPECT_EQ(parse("\"a,b\", \"say \"\"hi\"\"\" ,\" c \""), (Records{{"a,b", "say \"hi\"", "c"}}));
  EXPECT_EQ(parse("\"two\r\nlines\",x\n1,2"), (Records{{"two\r\nlines", "x"}, {"1", "2"}}));
  EXPECT_EQ(parse("\"\"\n"), (Records{{""}}));
  EXPECT_EQ(parse("5\" pipe,6\""), (Records{{"5\" pipe", "6\""}}));
  EXPECT_EQ(parse("a;b,c;d", ';'), (Records{{"a", "b,c", "d"}}));
  EXPECT_EQ(parse("a\t\tb\n\t\t\n1\t2\t3", '\t'), (Records{{"a", "", "b"}, {"", "", ""}, {"1", "2", "3"}}));
  EXPECT_EQ(parse("1 2", ' '), (Records{{"1", "2"}}));
}

TEST(Csv, PlacesCountFromOneInBytes) {
  CsvReader reader("a, b\n\"x\ny\", \"z\" ,w\n", ',', "f.csv");
  std::vector<Field> fields;
  ASSERT_TRUE(reader.next(fields));
  EXPECT_EQ(fields[0].column, 1);
  EXPECT_EQ(fields[1].column, 4);
  EXPECT_EQ(fields[1].line, 1);
  ASSERT_TRUE(reader.next(fields));
  EXPECT_EQ(fields[0].line, 2);
  EXPECT_EQ(fields[1].line, 3) << "the quoted field before it holds a line break";
  EXPECT_EQ(fields[1].column, 5);
  EXPECT_EQ(fields[2].column, 10);
}

TEST(Csv, MistakesInTheForm) {
  const auto refuse = [](const char* text, const char* message) {
    expect_error(ErrorCode::bad_input, message, [&] { parse(text); });
  };
  refuse("a,b\n1,\"2\n3,4\n", "f.csv:2:3: the quote is never closed");
  refuse("a,b\n\"1\"2,3\n", "f.csv:2:4: text after the closing quote of a field");
  refuse("a,b\n\"1\" \"2\",3\n", "f.csv:2:5: text after the closing quote of a field");
  refuse("a\n1\n\n2\n", "f.csv:3:1: blank line between the rows");
  refuse("\na\n1\n", "f.csv:1:1: blank line between the rows");
}

TEST(Csv, Delimiters) {
  for (const char delimiter : {',', ';', '\t', ' ', '|', ':'}) EXPECT_NO_THROW(check_delimiter(delimiter));
  for (const char delimiter : {'"', '\n', '\r', '\0', '5', '.', '-', '+', 'e', 'Z'}) {
    expect_error(ErrorCode::invalid_argument, "delimiter must be a character that no number contains",
                 [&] { check_delimiter(delimiter); });
  }
}

TableHeader header_of(std::string_view text) {
  CsvReader reader(text, ',', "f.csv");
  std::vector<Field> fields;
  reader.next(fields);
  return {fields, "f.csv"};
}

TEST(Csv, Header) {
  const auto header = header_of("time, \"a,b\" ,näme");
  EXPECT_EQ(header.names(), (std::vector<std::string>{"time", "a,b", "näme"}));
  EXPECT_EQ(header.find("a,b"), 1u);
  EXPECT_EQ(header.find("b"), std::nullopt);
  EXPECT_EQ(header.list(), "\"time\", \"a,b\", \"näme\"");
  const auto unnamed = header_of(",a,Unnamed: 2");
  EXPECT_EQ(unnamed.names(), (std::vector<std::string>{"column1", "a", "column3"}));
  EXPECT_TRUE(unnamed.is_unnamed(0) && !unnamed.is_unnamed(1) && unnamed.is_unnamed(2));
  expect_error(ErrorCode::bad_input, "f.csv:1:9: the header has two columns \"column2\"",
               [] { header_of("column2,,b"); });
  expect_error(ErrorCode::bad_input, "f.csv:1:5: the header has two columns \"a\"", [] { header_of("a,b,a"); });
  expect_error(ErrorCode::bad_input, R"(f.csv:1:3: the column name "b\xff" is not UTF-8)",
               [] { header_of("a,b\xff"); });
  std::string wide = "c0";
  for (int i = 1; i < 100; ++i) wide += ",c" + std::to_string(i);
  EXPECT_THAT(header_of(wide).list(), testing::EndsWith("\"c11\" and 88 more"));
}

/// Returns the number that number() reads from the second cell of a row.
double cell(const std::string& text) {
  const auto header = header_of("a,b,c");
  CsvReader reader(text, ',', "f.csv", 7);
  std::vector<Field> fields;
  reader.next(fields);
  header.check_width(fields);
  ColumnKind kind = ColumnKind::number;
  return header.number(fields, 1, kind);
}

TEST(Csv, Numbers) {
  EXPECT_EQ(cell("x,1,x"), 1.0);
  EXPECT_EQ(cell("x, -2.5e-3 ,x"), -2.5e-3);
  EXPECT_EQ(cell("x,+.5,x"), 0.5);
  EXPECT_EQ(cell("x,\"1e308\",x"), 1e308);
  const auto refuse = [](const char* text, const char* message) {
    expect_error(ErrorCode::bad_input, message, [&] { cell(text); });
  };
  refuse("x,,x", "f.csv:7:3: column \"b\": the value is missing");
  refuse("x, NA,x", "f.csv:7:4: column \"b\": the value is missing");
  refuse("x,abc,x", "f.csv:7:3: column \"b\": \"abc\" is not a number");
  refuse("x,1.5kg,x", "column \"b\": \"1.5kg\" is not a number");
  refuse("x,0x10,x", "column \"b\": \"0x10\" is not a number");
  refuse("x,+-5,x", "column \"b\": \"+-5\" is not a number");
  refuse("x,\"1,5\",x", "column \"b\": \"1,5\" is not a number");
  refuse("x,1\xff,x", R"(column "b": "1\xff" is not a number)");
  refuse("x,nan,x",
         "column \"b\": the value is missing; the option 'missing' (carry, interpolate or mask) accepts such values");
  refuse("x,-Inf,x", "column \"b\": \"-Inf\" is not a finite number");
  refuse("x,1e999,x", "column \"b\": \"1e999\" is beyond the range of numbers");
  refuse("1,2", "f.csv:7:3: 2 fields, the header has 3");
  refuse("1,2,3,4,5", "f.csv:7:7: 5 fields, the header has 3");
}

TEST(Csv, Table) {
  const TemporaryFolder folder;
  const OpenTable table({folder.write("t.csv",
                                      "time,x,note,y,late,odd\n2020-01-01,1,a,NA,,inf\n2020-01-02,2,3,4,5,6\n"
                                      "2020-01-03,2,3,5,6,6\n")},
                        {});
  EXPECT_EQ(table.choose_columns({}).columns, (std::vector<std::size_t>{1, 3, 4, 5}))
      << "the first value decides; infinity is a number too, to be refused where it is read";
  EXPECT_EQ(table.choose_columns({.excluded = {3, 1}}).columns, (std::vector<std::size_t>{4, 5}));
  EXPECT_EQ(table.reading({1, 3, 4, 5}, table.choose_columns({})),
            (std::vector<Message>{"4 columns read, 2 left out: time (dates), note (text)"}));
  EXPECT_EQ(table.columns({"y", "x"}, "inputs"), (std::vector<std::size_t>{3, 1}));
  expect_error(ErrorCode::invalid_argument,
               "inputs: " + folder.path("t.csv") + " has no column \"z\", only \"time\", \"x\", \"note\"",
               [&] { (void)table.columns({"z"}, "inputs"); });
  expect_error(ErrorCode::invalid_argument, "targets: column \"x\" is there twice", [&] {
    (void)table.columns({"x", "x"}, "targets");
  });

  const auto open = [&](std::string_view content) {
    return [path = folder.write("u.csv", content)] { (void)OpenTable({path}, {}).choose_columns({}); };
  };
  expect_error(ErrorCode::bad_input, "u.csv: the file is empty; it must start with the names of its columns", open(""));
  expect_error(ErrorCode::bad_input, "u.csv: no rows after the header", open("a,b\n"));
  expect_error(ErrorCode::bad_input, "u.csv: no numeric column to use as input among \"a\", \"b\"", open("a,b\nx,y\n"));
  expect_error(ErrorCode::bad_input, "u.csv:2:1: 1 field, the header has 2", open("a,b\n1\n"));
  expect_error(ErrorCode::io_failure, "No such file or directory", [&] { OpenTable({folder.path("none")}, {}); });
}

TEST(Normalise, MeanAndSpread) {
  const std::vector<double> values = {1, 2, 3, 6};
  const Column column = fit_column("x", values, "f.csv");
  EXPECT_DOUBLE_EQ(column.mean, 3.0);
  EXPECT_DOUBLE_EQ(column.scale, std::sqrt(14.0 / 4.0));
  EXPECT_FLOAT_EQ(normalise(6.0, column, "f.csv", 3), static_cast<float>(3.0 / std::sqrt(3.5)));
  // The mean of equal values need not equal them to the last bit.
  const std::vector<double> constant(10, 0.1);
  EXPECT_EQ(fit_column("x", constant, "f.csv").scale, 1.0);
  Column never = fit_column("x", constant, "f.csv");
  fit_changes(never, std::vector<std::vector<double>>{constant}, 1);
  EXPECT_EQ(never.scale, 1.0);
  const std::vector<double> zeros(3, 0.0);
  EXPECT_EQ(fit_column("x", zeros, "f.csv").scale, 1.0);
  const std::vector<double> huge = {1e308, 1e308, -1e308};
  expect_error(ErrorCode::bad_input, "f.csv: column \"x\": the values are too large for a mean and a spread",
               [&] { fit_column("x", huge, "f.csv"); });
  expect_error(ErrorCode::bad_input, "f.csv:3: column \"x\": 1e+300 is too far from the values that the model",
               [&] { normalise(1e300, column, "f.csv", 3); });
}

}  // namespace
}  // namespace penstock::data

namespace penstock {
namespace {

using test::expect_error;

DataDescription two_columns() {
  DataDescription description;
  description.task = Task::forecast;
  description.inputs = {{"x", 10.0, 2.0}, {"y", 0.0, 1.0}};
  return description;
}

TEST(RowReader, ColumnsInAnyOrderOthersIgnored) {
  RowReader reader(two_columns(), "y,time,x\r", "-");
  std::vector<float> features = {-1.0f, -1.0f};
  EXPECT_TRUE(reader.read("0.5,12:30,14\r", features));
  EXPECT_EQ(features, (std::vector<float>{2.0f, 0.5f}));
  EXPECT_EQ(reader.column("time"), 1u);
  EXPECT_EQ(reader.column("z"), std::nullopt);
  EXPECT_EQ(reader.text(1), "12:30");
  EXPECT_FALSE(reader.read("", features));
  EXPECT_FALSE(reader.read(" \r", features));
  EXPECT_EQ(features, (std::vector<float>{2.0f, 0.5f})) << "untouched by a blank line";
  EXPECT_EQ(reader.text(1), "12:30");
  RowReader moved(std::move(reader));
  EXPECT_TRUE(moved.read("\"1\",\"a,b\",8", features));
  EXPECT_EQ(features, (std::vector<float>{-1.0f, 1.0f}));
  EXPECT_EQ(moved.text(1), "a,b");
}

TEST(RowReader, AValueThatNobodyMeasuredIsMissing) {
  RowReader reader(two_columns(), "x,y", "-", {.missing = Missing::carry});
  std::vector<float> features(2);
  EXPECT_TRUE(reader.read("10,3", features));
  for (const char* sentinel : {"3.4e38", "-3.4e+38", "1e300", "1e13"}) {
    EXPECT_TRUE(reader.read(std::string("10,") + sentinel, features)) << sentinel;
    EXPECT_EQ(features, (std::vector<float>{0.0f, 3.0f})) << sentinel;
  }
  EXPECT_EQ(reader.findings().replaced.count, 4);
  EXPECT_EQ(reader.findings().replaced.first,
            "-:3: column \"y\": 3.4e+38 is too far from the values that the model is trained on");
  RowReader strict(two_columns(), "x,y", "-");
  expect_error(ErrorCode::bad_input, "-:2: column \"y\": 3.4e+38 is too far",
               [&] { strict.read("10,3.4e38", features); });
}

TEST(RowReader, SeriesThatTrainingDidNotSeeAreReadByThoseThatItSaw) {
  DataDescription data = two_columns();
  data.inputs[1].logarithm = true;
  data.series.group_column = "shop";
  data.targets = {{"z", 0.0, 1.0}};
  data.series.groups = {{"middle", {{5.0, 1.0}, {0.0, 1.0}}, {{1.0, 2.0}}},
                        {"high", {{1e20, 2.0}, {0.0, 1.0}}, {{5.0, 4.0}}},
                        {"low", {{-1e20, 2.0}, {0.0, 1.0}}, {{3.0, 3.0}}}};
  RowReader reader(data, "shop,x,y", "-", {.missing = Missing::carry});
  std::vector<float> features(2);
  Index refused = 0;
  const auto is_read = [&](const std::string& row) {
    EXPECT_TRUE(reader.read(row, features));
    const Index before = std::exchange(refused, reader.findings().replaced.count);
    return refused == before;
  };
  EXPECT_TRUE(is_read("new,1e20,1"));
  EXPECT_TRUE(is_read("new,-1e20,1e300"));
  EXPECT_TRUE(is_read("new,1e15,1"));  // between what two of them can be
  EXPECT_FALSE(is_read("new,1.1e20,1"));
  EXPECT_FALSE(is_read("new,-1.1e20,1"));
  EXPECT_FALSE(is_read("middle,1e15,1"));
  const Scaling target = reader.settle_group("new", features, 1).targets.front();
  EXPECT_EQ(target.mean, 3.0);
  EXPECT_EQ(target.scale, 3.0);
}

TEST(RowReader, MistakesNameLineAndColumn) {
  RowReader reader(two_columns(), "x,y", "-");
  std::vector<float> features = {7.0f, 7.0f};
  const auto refuse = [&](const char* line, const char* message) {
    expect_error(ErrorCode::bad_input, message, [&] { reader.read(line, features); });
    EXPECT_EQ(features, (std::vector<float>{7.0f, 7.0f})) << "untouched by a bad row";
  };
  refuse("1,two", "-:2:3: column \"y\": \"two\" is not a number");
  refuse("1,", "-:3:3: column \"y\": the value is missing");
  refuse("1", "-:4:1: 1 field, the header has 2");
  refuse("1,2,3", "-:5:5: 3 fields, the header has 2");
  refuse("nan,2", "-:6:1: column \"x\": the value is missing");
  refuse("1,\"2", "-:7:3: the quote is never closed");
  refuse("1,1e300", "-:8: column \"y\": 1e+300 is too far from the values that the model is trained on");
  refuse("1,2\n3,4", "-:9: more than one line in a line");
  EXPECT_TRUE(reader.read("10,3", features)) << "a bad row does not spoil the next";
  EXPECT_EQ(features, (std::vector<float>{0.0f, 3.0f}));
  std::vector<float> short_of(1);
  expect_error(ErrorCode::invalid_argument, "features must have room for 2 values, not 1",
               [&] { reader.read("1,2", short_of); });
  expect_error(ErrorCode::invalid_argument, "column must be below 2, not 2", [&] { (void)reader.text(2); });
}

TEST(RowReader, HasTheValuesOfTargetsThatWereThere) {
  DataDescription data = two_columns();
  data.targets = {{"y"}, {"z"}, {"x"}};
  const RowFormat bearing{.missing = Missing::carry, .replace_bad = true};
  RowReader reader(data, "x,y", "-", bearing);
  std::vector<float> row(2);
  using testing::ElementsAre, testing::IsNan;
  const auto values = [&](const char* line) {
    reader.read(line, row);
    return std::vector<double>(reader.target_values().begin(), reader.target_values().end());
  };
  EXPECT_THAT(values("14,3"), ElementsAre(3.0, IsNan(), 14.0)) << "the model does not read z";
  EXPECT_THAT(values("14,"), ElementsAre(IsNan(), IsNan(), 14.0));
  EXPECT_EQ(row, (std::vector<float>{2.0f, 3.0f}));
  EXPECT_THAT(values("what,3"), ElementsAre(3.0, IsNan(), IsNan()));
  EXPECT_THAT(values("nothing"), ElementsAre(IsNan(), IsNan(), IsNan()));
  EXPECT_THAT(values("4000000256.125,0"), ElementsAre(0.0, IsNan(), 4000000256.125)) << "as the text has them";
}

TEST(RowReader, RestartsWithNothingCarriedOver) {
  const RowFormat bearing{.missing = Missing::carry, .sequence_column = "run"};
  RowReader reader(two_columns(), "x,y,run", "-", bearing);
  std::vector<float> row(2);
  reader.read("14,3,a", row);
  reader.read(",,a", row);
  EXPECT_EQ(row, (std::vector<float>{2.0f, 3.0f}));
  EXPECT_FALSE(reader.starts_sequence());
  reader.restart();
  reader.read(",1,a", row);
  EXPECT_EQ(row, (std::vector<float>{0.0f, 1.0f})) << "the mean, as before the first row";
  EXPECT_FALSE(reader.starts_sequence());
  reader.read("12,4,a", row);
  reader.read(",,b", row);
  EXPECT_TRUE(reader.starts_sequence());
  EXPECT_EQ(row, (std::vector<float>{0.0f, 0.0f}));
  reader.read("12,4,b", row);
  const auto last = reader.last_rows();
  ASSERT_EQ(last.size(), 1u);
  RowReader next(two_columns(), "x,y,run", "-", bearing);
  next.set_last_rows(last);
  next.read(",,b", row);
  EXPECT_EQ(row, (std::vector<float>{1.0f, 4.0f}));
  expect_error(ErrorCode::invalid_argument, "rows: the last one must have 2 values, not 1", [&] {
    next.set_last_rows({{"", {.values = {1.0f}, .date = {}}}});
  });
}

TEST(RowReader, ARowOfNoFormIsOfTheSequenceBeforeIt) {
  RowReader reader(two_columns(), "run,x,y", "-",
                   {.missing = Missing::carry, .replace_bad = true, .sequence_column = "run"});
  std::vector<float> row(2);
  for (const char* line : {"a,14,3", "a,14", "a,14,3"}) {
    reader.read(line, row);
    EXPECT_FALSE(reader.starts_sequence()) << line;
    EXPECT_EQ(row, (std::vector<float>{2.0f, 3.0f})) << line;
  }
}

TEST(RowReader, Headers) {
  const auto open = [](const char* header) { return [header] { RowReader(two_columns(), header, "rows"); }; };
  expect_error(ErrorCode::bad_input, "rows:1:1: the first line must be a header", open(""));
  expect_error(ErrorCode::bad_input, "rows:1:1: the model reads a column \"y\", but the header has only \"x\", \"z\"",
               open("x,z"));
  expect_error(ErrorCode::bad_input, "rows:1:3: the header has two columns \"x\"", open("x,x,y"));
  DataDescription tokens;
  tokens.vocabulary = 256;
  expect_error(ErrorCode::invalid_argument, "this model reads tokens, not rows of a CSV file",
               [&] { RowReader(tokens, "x", "-"); });
}

TEST(DataDescription, Sizes) {
  DataDescription description = two_columns();
  description.targets = {{"x"}, {"y"}, {"z"}};
  description.series.horizon = 4;
  EXPECT_EQ(description.input_size(), 2);
  EXPECT_EQ(description.output_size(), 12);
  description.task = Task::classify;
  description.labels.classes = {"a", "b"};
  EXPECT_EQ(description.output_size(), 2);
  description.task = Task::language;
  description.vocabulary = 256;
  EXPECT_EQ(description.input_size(), 1);
  EXPECT_EQ(description.output_size(), 256);
}

}  // namespace
}  // namespace penstock
