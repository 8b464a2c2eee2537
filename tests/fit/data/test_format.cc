#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "data/table/table_format.h"
#include "data/table/ts_file.h"
#include "penstock/data.h"
#include "penstock/data/labelled_texts.h"
#include "penstock/data/rows.h"
#include "penstock/sources.h"
#include "support/expect_error.h"
#include "support/gzip.h"
#include "support/temporary_folder.h"

namespace penstock::data {
namespace {

using test::expect_error;
using test::gzip;
using test::TemporaryFolder;

std::string found(const std::string& content, const TableFormat& given = {}) {
  const FoundFormat format = find_format(content, given);
  return fmt::format("{}{}{}", delimiter_name(format.delimiter), format.decimal, format.header ? "" : " none");
}

TEST(TableFormat, IsFoundFromTheFirstRows) {
  EXPECT_EQ(found("a,b\n1.5,2\n"), "','.");
  EXPECT_EQ(found("a;b\n1,5;2\n"), "';',");
  EXPECT_EQ(found("a;b\n1.5;2\n"), "';'.");
  EXPECT_EQ(found("a\tb\n1,5\t2\n"), "tab,");
  EXPECT_EQ(found("a|b\n1|2\n"), "'|'.");
  EXPECT_EQ(found("a;b\n1.234,5;2\n"), "';',");
  EXPECT_EQ(found("a;b\n1,234;2\n"), "';',") << "a semicolon is written where a comma starts a fraction";
  EXPECT_EQ(found("a\tb\n1,234\t2\n"), "tab.");
  EXPECT_EQ(found("\"a\",\"b\"\n\"1,5\",\"2\"\n"), "',',");
  EXPECT_EQ(found("value\n1,5\n2,7\n"), "';',") << "one column of fractions";
  EXPECT_EQ(found("value\n1\n2\n"), "','.");
  EXPECT_EQ(found("\"a;b\",c\n1,2\n"), "','.");
  EXPECT_EQ(found("1,5;2,5\n3,1;4,2\n"), "';', none");
  EXPECT_EQ(found("1,2\n3,4\n"), "','. none");
  EXPECT_EQ(found("2020-01-01,2\n2020-01-02,4\n"), "','. none");
  EXPECT_EQ(found(",0,1\n0,5,6\n1,7,8\n"), "','.") << "pandas counts columns without names";
  EXPECT_EQ(found("sep=|\na|b\n1|2\n"), "'|'.");
  EXPECT_EQ(found(""), "','.");
  EXPECT_EQ(found("a;b\n1;2\n", {.delimiter = ','}), "','.");
  EXPECT_EQ(found("1,2\n3,4\n", {.header = true}), "','.");
  EXPECT_EQ(found("a;b\n1,234;2\n", {.decimal = '.'}), "';'.");
  expect_error(ErrorCode::invalid_argument, "decimal must be '.' or ',', not \";\"",
               [] { found("a", {.decimal = ';'}); });
}

TEST(TableFormat, BlanksApartFromAllOtherSeparators) {
  EXPECT_EQ(found("x y\n1.5 2\n"), "blank.");
  EXPECT_EQ(found("  1749  1   96.7\n  1749  2  104.3\n"), "blank. none");
  EXPECT_EQ(found("x  y\n1,5\t 2,5\n"), "blank,");
  EXPECT_EQ(found("2020-03-04 12:30\n2020-03-04 12:31\n"), "','.") << "a date and its time are one value";
  EXPECT_EQ(found("1 234\n5 678\n"), "','. none") << "so are groups of digits";
  EXPECT_EQ(found("when,v\n2020-03-04 12:30,1\n"), "','.");
  EXPECT_EQ(found("some words\nand some more words\n"), "','.");
}

TEST(TableFormat, LinesInFrontAreNoRows) {
  const auto opening = [](const std::string& text) {
    const FoundFormat format = find_format(text, {});
    return fmt::format("{} from line {}: {}", format.header ? "names" : "rows", format.first_line,
                       text.substr(format.skipped));
  };
  EXPECT_EQ(opening("# week co2\n1 2\n3 4\n"), "names from line 1: week co2\n1 2\n3 4\n") << "as NumPy writes them";
  EXPECT_EQ(opening("## made in 1958\r\n# week,co2\r\n1,2\r\n3,4\r\n"),
            "names from line 2: week,co2\r\n1,2\r\n3,4\r\n");
  EXPECT_EQ(opening("# by me\n#\nweek,co2\n1,2\n"), "names from line 3: week,co2\n1,2\n");
  EXPECT_EQ(opening("# by me and you\n1,2\n3,4\n"), "rows from line 2: 1,2\n3,4\n");
  EXPECT_EQ(opening("# 0.1 0.2\n1 2\n3 4\n"), "rows from line 2: 1 2\n3 4\n") << "values are no names";
  EXPECT_EQ(opening("sep=;\na;b\n1;2\n"), "names from line 2: a;b\n1;2\n");
  EXPECT_EQ(opening("sep=;"), "names from line 2: ");
  EXPECT_EQ(opening("#"), "names from line 2: ");
}

TEST(TableFormat, TablesWhoseNamesSayNothing) {
  const TemporaryFolder folder;
  const auto kind = [&](const std::string& name, const std::string& text) {
    return guess_kind({folder.write(name, text)});
  };
  const std::string sunspots = "1749  1  96.7\n1749  2 104.3\n1749  3 116.7\n";
  for (const char* name : {"a.txt", "a.dat", "a.data", "a.asc", "a.out", "a"}) {
    EXPECT_EQ(kind(name, sunspots), SourceKind::series) << name;
    EXPECT_TRUE(is_unnamed_table({folder.path(name)})) << name;
  }
  EXPECT_EQ(kind("a.md", sunspots), SourceKind::text);
  EXPECT_EQ(kind("a.csv", sunspots), SourceKind::series);
  EXPECT_FALSE(is_unnamed_table({folder.path("a.csv")}));
  EXPECT_EQ(kind("b.txt", "1.5\n2.5\n3.5\n"), SourceKind::series);
  EXPECT_EQ(kind("b.txt", "Date;Power\n1/1/2007;0,5\n2/1/2007;0,7\n"), SourceKind::series);
  EXPECT_EQ(kind("b.txt", "sequence,label,x\na,up,1\na,up,2\n"), SourceKind::labelled);
  EXPECT_EQ(kind("c.txt", "1.5\n2.5\n"), SourceKind::text) << "two lines show nothing";
  EXPECT_EQ(kind("c.txt", "1.5\n2.5\nthe end\n"), SourceKind::text);
  EXPECT_EQ(kind("c.txt", "Chapter 1\nIt was, as 2\nmen said, 3\n"), SourceKind::text);
  EXPECT_EQ(kind("c.txt", "a b\nc d\ne f\n"), SourceKind::text);
  EXPECT_EQ(kind("c.txt", "\xff\xfe\x01"), SourceKind::text);
  EXPECT_EQ(kind("c.txt", ""), SourceKind::text);
}

TEST(TableFormat, TablesOfMoreKinds) {
  const TemporaryFolder folder;
  const auto data = open_series(folder.write("a.csv",
                                             "\xef\xbb\xbfsep=;\r\nDatum;\"x, y\";an\r\n43894;1.234,5;true\r\n"
                                             "43895;1.235,5;false\r\n43896;1.236,5;true\r\n"),
                                {.validation_fraction = 0});
  const DataDescription& description = data->description();
  ASSERT_EQ(description.inputs.size(), 2u);
  EXPECT_EQ(description.inputs[0].name, "x, y");
  EXPECT_DOUBLE_EQ(description.inputs[0].mean, 1235.5);
  EXPECT_DOUBLE_EQ(description.inputs[1].mean, 2.0 / 3.0);
  EXPECT_EQ(description.table.delimiter, ';');
  EXPECT_EQ(description.table.decimal, ',');
  EXPECT_EQ(data->reading(),
            (std::vector<Message>{"separator ';', decimal ','", "2 columns read, 1 left out: Datum (dates)"}));
  const std::string plain = folder.write("b.csv", "1,5\n2,7\n4,8\n");
  const auto unnamed = open_series(plain, {.validation_fraction = 0});
  EXPECT_FALSE(unnamed->description().table.header);
  EXPECT_EQ(unnamed->description().inputs[1].name, "column2");
  EXPECT_EQ(unnamed->training_steps(), 2) << "the first row is a row";
}

TEST(TableFormat, TruthValuesOfManyLanguages) {
  const TemporaryFolder folder;
  const auto open = [&](const std::string& text) {
    return open_series(folder.write("t.csv", text), {.validation_fraction = 0});
  };
  const auto data = open("v,offen,wind,flag,mix,ever\n1,Ja,N,Y,yes,on\n2,nein,E,N,nein,ON\n3,JA,N,y,yes,on\n");
  const DataDescription& description = data->description();
  ASSERT_EQ(description.inputs.size(), 3u);
  EXPECT_EQ(description.inputs[1].name, "offen");
  EXPECT_DOUBLE_EQ(description.inputs[1].mean, 2.0 / 3.0);
  EXPECT_DOUBLE_EQ(description.inputs[2].mean, 2.0 / 3.0);
  EXPECT_EQ(data->reading(),
            (std::vector<Message>{"3 columns read, 3 left out: wind (text), mix (text), ever (text)",
                                  "truth values in offen (Ja as 1, nein as 0), flag (Y as 1, N as 0)"}));
  expect_error(ErrorCode::bad_input,
               "t.csv:4:3: column \"offen\": \"zu\" is neither true nor false; the option 'categories' accepts",
               [&] { open("v,offen\n1,ja\n2,nein\n3,zu\n"); });
  EXPECT_TRUE(open("t,y\n1,5\n2,7\n")->description().table.header) << "these are names, although each is also a value";
  RowReader rows(description, "v,offen,flag", "-");
  std::vector<float> features(3);
  ASSERT_TRUE(rows.read("2,NEIN,y", features));
  EXPECT_FLOAT_EQ(features[1], static_cast<float>(description.inputs[1].normal(0.0)));
  EXPECT_FLOAT_EQ(features[2], static_cast<float>(description.inputs[2].normal(1.0)));
}

TEST(Sources, CompressedFilesAndFolders) {
  const TemporaryFolder folder;
  std::string long_text;
  for (int i = 0; i < 100000; ++i) long_text += std::to_string(i);
  EXPECT_EQ(read_source(folder.write("a.txt.gz", gzip(long_text))), long_text);
  EXPECT_EQ(read_source(folder.write("two.gz", gzip("first ") + gzip("second"))), "first second");
  const std::string cut = gzip(long_text).substr(0, 1000);
  expect_error(ErrorCode::bad_input, "damaged gzip data: they end too early",
               [&] { read_source(folder.write("cut.gz", cut)); });
  std::string bad = gzip(long_text);
  bad[500] = static_cast<char>(bad[500] ^ 255);
  expect_error(ErrorCode::bad_input, "bad.gz: damaged gzip data: ", [&] { read_source(folder.write("bad.gz", bad)); });

  // What the end says of the size is that of the last member, or of no member.
  const std::string blanks(1 << 20, ' '), padded = gzip(long_text) + std::string(3, '\0');
  EXPECT_EQ(read_source(folder.write("blanks.gz", gzip(blanks))), blanks);
  EXPECT_EQ(read_source(folder.write("parts.gz", gzip(blanks) + gzip(long_text) + gzip(""))), blanks + long_text);
  EXPECT_EQ(read_source(folder.write("padded.gz", padded)), long_text);
  EXPECT_EQ(read_source(folder.write("empty.gz", gzip(""))), "");

  const TemporaryFolder books;
  books.write("b", "2222");
  books.write("a", "1111");
  books.write(".hidden", "xxxx");
  const auto data = open_text(Sources{books.folder(), folder.path("two.gz")}, {.validation_fraction = 0});
  Example example;
  data->next(1, 19, example);
  EXPECT_EQ(std::string(example.tokens.begin(), example.tokens.end()), "11112222first secon");
}

TEST(Sources, SeveralTables) {
  const TemporaryFolder folder;
  const std::string one = folder.write("1.csv", "x\n0\n1\n2\n"), two = folder.write("2.csv", "x\n10\n11\n12\n13\n");
  const auto data = open_series(Sources{one, two}, {.horizon = 2, .validation_fraction = 0});
  Example example;
  EXPECT_EQ(data->training_steps(), 5) << "nothing follows the last row of a file";
  data->next(1, 5, example);
  EXPECT_EQ(example.reset, (std::vector<std::uint8_t>{0, 0, 1, 0, 0})) << "the second file starts anew";
  EXPECT_EQ(example.weights, (std::vector<float>{1, 1, 1, 0, 1, 1, 1, 1, 1, 0})) << "none forecasts across files";
  const std::string other = folder.write("3.csv", "y\n1\n2\n");
  expect_error(ErrorCode::bad_input, "3.csv:1:1: the columns are \"y\", those of " + one + " are \"x\"", [&] {
    open_series(Sources{one, other});
  });
  const auto labelled = open_labelled(Sources{folder.write("4.csv", "sequence,label,x\n1,a,1\n1,a,2\n"),
                                              folder.write("5.csv", "sequence,label,x\n1,b,3\n1,b,4\n")},
                                      {.validation_fraction = 0});
  EXPECT_EQ(labelled->training_steps(), 2) << "a name begins a new sequence in every file";
}

TEST(Sources, OneFileIsReadOnceUnderAllItsNames) {
  const TemporaryFolder folder;
  const std::string file = folder.write("1.csv", "sequence,label,x\n1,a,1\n1,a,2\n2,b,3\n2,b,4\n");
  const std::string other = folder.path("./1.csv"), link = folder.path("link.csv"), hard = folder.path("hard.csv");
  std::filesystem::create_symlink("1.csv", link);
  std::filesystem::create_hard_link(file, hard);
  const auto refuse = [](const std::string& message, const Sources& sources) {
    expect_error(ErrorCode::bad_input, message, [&] { open_series(sources); });
    expect_error(ErrorCode::bad_input, message, [&] { open_labelled(sources); });
    expect_error(ErrorCode::bad_input, message, [&] { open_labelled_texts(sources); });
    expect_error(ErrorCode::bad_input, message, [&] { open_text(sources); });
    expect_error(ErrorCode::bad_input, message, [&] { files_of(sources); });
  };
  refuse(file + ": given twice, so all it holds would count twice; give it once", {file, file});
  for (const std::string& name : {other, link, hard}) {
    refuse(name + ": the same file as " + file + ", so all it holds would count twice; leave one of the two out",
           {file, name});
  }
  refuse(hard + ": the same file as " + file, {folder.folder()});
  EXPECT_EQ(guess_kind({file, file}), SourceKind::labelled) << "only a reader refuses";
  const std::string copy = folder.write("2.csv", folder.read("1.csv"));
  EXPECT_NO_THROW(open_labelled(Sources{file, copy}));
}

/// Returns the raw values of the first input.
std::vector<float> raw_features(const Dataset& data, const Example& example) {
  std::vector<float> values;
  const Column& column = data.description().inputs[0];
  for (std::size_t i = 0; i < example.features.size(); i += data.description().inputs.size()) {
    values.push_back(static_cast<float>(std::round(example.features[i] * column.scale + column.mean)));
  }
  return values;
}

TEST(MissingValues, EveryPolicy) {
  const TemporaryFolder folder;
  const std::string path = folder.write("m.csv", "x,y\n,5\n10,6\nNA,7\n?,8\n40,9\nnan,10\n");
  const auto read = [&](Missing missing, std::vector<float>* weights = nullptr) {
    const auto data = open_series(path, {.inputs = {"x"}, .validation_fraction = 0, .missing = missing});
    EXPECT_EQ(data->description().table.missing, missing);
    Example example;
    data->next(1, 5, example);
    if (weights != nullptr) *weights = example.weights;
    return raw_features(*data, example);
  };
  EXPECT_EQ(read(Missing::carry), (std::vector<float>{10, 10, 10, 10, 40}));
  EXPECT_EQ(read(Missing::interpolate), (std::vector<float>{10, 10, 20, 30, 40}));
  std::vector<float> weights;
  EXPECT_EQ(read(Missing::mask, &weights), (std::vector<float>{10, 10, 10, 10, 40}));
  EXPECT_EQ(weights, (std::vector<float>{1, 0, 0, 1, 0}));
  expect_error(ErrorCode::bad_input, "m.csv:2:1: column \"x\": the value is missing", [&] { read(Missing::refuse); });
  const std::string none = folder.write("n.csv", "x,y\n,1\n,2\n");
  expect_error(ErrorCode::bad_input, "n.csv: column \"x\" has no values",
               [&] { open_series(none, {.inputs = {"x"}, .missing = Missing::carry}); });
  expect_error(ErrorCode::invalid_argument, "missing must be one of refuse, carry, interpolate, mask, not \"drop\"",
               [] { parse_missing("drop"); });
}

TEST(MissingValues, StayWithinTheirSequence) {
  const TemporaryFolder folder;
  const auto data = open_labelled(folder.write("l.csv", "sequence,label,x\n1,a,1\n1,a,\n2,b,\n2,b,7\n3,a,\n3,a,\n"),
                                  {.validation_fraction = 0, .missing = Missing::interpolate});
  Example example;
  data->next(3, 2, example);
  std::vector<float> values = raw_features(*data, example);
  std::sort(values.begin(), values.end());
  EXPECT_EQ(values, (std::vector<float>{1, 1, 4, 4, 7, 7})) << "a sequence without any value gets the mean";
}

/// The warnings about a column of 200 values near 5, some of which are others.
std::vector<std::string> warnings(const std::map<int, std::string>& others, double spread = 1.0) {
  const TemporaryFolder folder;
  std::string text = "x,y\n";
  for (int i = 0; i < 200; ++i) {
    const auto other = others.find(i);
    const std::string x = other != others.end() ? other->second : fmt::format("{:.3f}", 5.0 + spread * std::sin(i * i));
    text += fmt::format("{},{}\n", x, i * i % 17);
  }
  std::vector<std::string> found;
  for (const Message& each : open_series(folder.write("s.csv", text))->reading()) {
    const std::string finding = each.text();
    if (!finding.starts_with("warning: ")) continue;
    const std::size_t path = finding.find(folder.folder());
    found.push_back(finding.substr(0, path) + finding.substr(std::min(finding.find("s.csv", path), finding.size())));
  }
  return found;
}

TEST(MissingValues, NumbersThatStandForThem) {
  const std::string rest =
      " of s.csv, is far from all other values: if it stands for a missing value, leave these cells empty, and the "
      "option 'missing' (carry, interpolate or mask) deals with them";
  using testing::ElementsAre;
  EXPECT_THAT(warnings({{7, "-999"}, {70, "-999"}, {71, "-999.0"}}),
              ElementsAre("warning: column \"x\": -999 in 3 of 200 rows, first in line 9" + rest));
  EXPECT_THAT(warnings({{0, "9999"}}),
              ElementsAre("warning: column \"x\": 9999 in 1 of 200 rows, first in line 2" + rest));
  EXPECT_THAT(warnings({{9, "1e20"}}), ElementsAre(testing::HasSubstr("1e+20 in 1 of 200 rows, first in line 11")));
  for (const char* value : {"-99", "999.9", "-9999", "32767", "2147483647", "1e15", "9.96921e36", "-888", "777"}) {
    EXPECT_EQ(warnings({{8, value}, {9, value}, {10, value}}).size(), 1U) << value;
  }
  EXPECT_EQ(warnings({{8, "-999"}, {9, "-999"}, {20, "9999"}, {21, "9999"}}).size(), 2U) << "one at either end";
}

TEST(MissingValues, RealValuesStandForThemselves) {
  EXPECT_TRUE(warnings({}).empty());
  EXPECT_TRUE(warnings({{8, "1000"}}).empty()) << "an outlier";
  EXPECT_TRUE(warnings({{8, "1000"}, {9, "1250"}, {60, "730"}}).empty()) << "several";
  EXPECT_TRUE(warnings({{8, "99"}, {9, "99"}}).empty()) << "a number as any other";
  EXPECT_TRUE(warnings({{8, "999"}}, 400.0).empty()) << "not far away";
  EXPECT_TRUE(warnings({{8, "400"}, {9, "400"}, {10, "400"}}, 50.0).empty()) << "a sensor at its limit";
  std::map<int, std::string> tail, few, zeros;
  for (int i = 0; i < 200; ++i) {
    tail[i] = fmt::format("{:.0f}", std::exp(i % 37 / 3.0));  // 1 to 160,000
    few[i] = i % 3 == 0 ? "999" : "1";
    zeros[i] = i % 50 == 49 ? "5000" : i % 4 == 3 ? "3" : "0";
  }
  EXPECT_TRUE(warnings(tail).empty());
  EXPECT_TRUE(warnings(few).empty()) << "two values are states";
  EXPECT_TRUE(warnings(zeros).empty()) << "a large order now and then";
}

TEST(TsFile, BecomesATable) {
  const std::string table = table_of_ts(
      "# comment\n@problemName Test\n@timeStamps false\n@classLabel true a b\n@data\n1,2,3:4,5,?:a\r\n6:7:\"b,\" c\n",
      "t.ts");
  EXPECT_EQ(table, "sequence,label,dim0,dim1\n1,\"a\",1,4\n1,\"a\",2,5\n1,\"a\",3,?\n2,\"\"\"b,\"\" c\",6,7\n");
  const auto refuse = [](const char* text, const char* message) {
    expect_error(ErrorCode::bad_input, message, [&] { table_of_ts(text, "t.ts"); });
  };
  refuse("", "t.ts: there are no series behind @data");
  refuse("@data\n", "t.ts: there are no series behind @data");
  refuse("1,2:a\n", "t.ts:1: \"1,2:a\" stands in front of @data");
  refuse("@timestamps TRUE\n", "t.ts:1: series with time stamps cannot be read");
  refuse("@classLabel false\n", "t.ts:1: the series have no classes to learn");
  refuse("@targetlabel true\n", "t.ts:1: the series have numbers as targets");
  refuse("@data\n1,2\n", "t.ts:2: there is no ':' between the values and a class");
  refuse("@data\n1,2:3:a\n", "t.ts:2: dimension 2 has 1 value, dimension 1 has 2");
  refuse("@data\n1,2:\n", "t.ts:2: the class is missing");
  refuse("@data\n1,x:a\n", "t.ts:2: \"x\" is not a number");
  const TemporaryFolder folder;
  std::string file = "@problemName T\n@data\n";
  for (int i = 0; i < 10; ++i) file += i % 2 == 0 ? "1,2,3:up\n" : "3,2:down\n";
  const auto data = open_labelled(folder.write("T_TRAIN.ts", file));
  EXPECT_EQ(data->description().labels.classes, (std::vector<std::string>{"down", "up"}));
  EXPECT_EQ(guess_kind({folder.path("T_TRAIN.ts")}), SourceKind::labelled);
  EXPECT_EQ(guess_kind({folder.write("program.ts", "const x: number = 1\n")}), SourceKind::text);
}

DataDescription one_column() {
  DataDescription description;
  description.task = Task::forecast;
  description.inputs = {{"x", 10.0, 2.0}};
  return description;
}

TEST(RowFormat, LinesInFrontAreNoRows) {
  const auto read = [](const std::string& text, const DataDescription& description) {
    Rows rows(Table{"f", text}, description, {});
    std::vector<float> values;
    while (rows.next() == Rows::Kind::row) values.push_back(rows.features()[0]);
    return values;
  };
  const std::vector<float> both{2.0f, 3.0f};
  for (const char* front : {"sep=;\nt;x\n", "# by me\n# t x\n", "#\nt;x\n", "sep=;\n# by me\nx;t\n"}) {
    const bool blanks = std::string_view(front).find("# t x") != std::string_view::npos;
    const bool reversed = std::string_view(front).find("x;t") != std::string_view::npos;
    const std::string rows = blanks ? "1  14\n2 16\n" : reversed ? "14;1\n16;2\n" : "1;14\n2;16\n";
    EXPECT_EQ(read(front + rows, one_column()), both) << front;
  }
  DataDescription nameless = one_column();
  nameless.inputs[0].name = "column1";
  nameless.table.header = false;
  EXPECT_EQ(read("# by me\n14\n16\n", nameless), both);
  DataDescription strange = one_column();
  strange.inputs[0].name = "#x";
  EXPECT_EQ(read("#x\n14\n16\n", strange), both) << "a name";
  expect_error(ErrorCode::bad_input, "f:4:1: column \"x\": \"z\" is not a number",
               [&] { read("# by me\nx\n14\nz\n", one_column()); });
  expect_error(ErrorCode::bad_input, "f: there is nothing to read but comments", [&] { read("#\n#\n", one_column()); });
}

TEST(RowFormat, OtherDelimitersAndMissingValues) {
  std::vector<float> features(1);
  RowReader semicolons(one_column(), "t;x", "-", {.decimal = ','});
  EXPECT_TRUE(semicolons.read("1;14,5", features));
  EXPECT_EQ(features[0], 2.25f);
  DataDescription german = one_column();
  german.table.delimiter = ';';
  german.table.decimal = ',';
  RowReader commas(german, "x,t", "-");
  EXPECT_TRUE(commas.read("14.5,1", features));
  EXPECT_EQ(features[0], 2.25f) << "a stream of commas has points";

  DataDescription carries = one_column();
  carries.table.missing = Missing::carry;
  RowReader gaps(carries, "x", "-");
  EXPECT_TRUE(gaps.read("NA", features));
  EXPECT_EQ(features[0], 0.0f) << "the mean, before there is a value";
  EXPECT_TRUE(gaps.read("14", features));
  EXPECT_TRUE(gaps.read("?", features));
  EXPECT_EQ(features[0], 2.0f);
  EXPECT_EQ(gaps.findings().replaced.count, 2);
  EXPECT_THAT(gaps.findings().replaced.first.text(), testing::StartsWith("-:2:1: column \"x\": the value is missing"));
  expect_error(ErrorCode::bad_input, "-:5:1: column \"x\": \"fourteen\" is not a number",
               [&] { gaps.read("fourteen", features); });

  RowReader bears(one_column(), "x,y", "-", {.missing = Missing::carry, .replace_bad = true});
  EXPECT_TRUE(bears.read("14,1", features));
  for (const char* row : {"fourteen,1", "1,2,3", "1e300,1", "\"1,2"}) {
    features[0] = 7.0f;
    EXPECT_TRUE(bears.read(row, features)) << row;
    EXPECT_EQ(features[0], 2.0f) << row;
  }
  EXPECT_EQ(bears.findings().replaced.count, 4);

  DataDescription unnamed = one_column();
  unnamed.table.header = false;
  unnamed.inputs[0].name = "column2";
  RowReader rows(unnamed, "5,14", "-");
  EXPECT_TRUE(rows.read("5,14", features)) << "the first line is a row";
  EXPECT_EQ(features[0], 2.0f);
  expect_error(ErrorCode::bad_input, "-:2:3: column \"column2\": the value is missing",
               [&] { rows.read("5,", features); });
}

}  // namespace
}  // namespace penstock::data
