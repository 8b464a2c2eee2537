// Tables of Arrow: values are those of their texts, and damaged arrays are refused.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/random.h"
#include "data/table/dates.h"
#include "data/table/number.h"
#include "data/table/open_table.h"
#include "penstock/data.h"
#include "support/arrow_table.h"
#include "support/expect_error.h"

namespace penstock {
namespace {

using data::Field;
using data::OpenTable;
using test::arrow_column;
using test::ArrowColumn;
using test::ArrowTable;
using test::bytes_of;
using test::expect_error;

/// The fields of a table of one column. They refer to it.
std::vector<Field> fields_of(const OpenTable& table) {
  std::vector<Field> fields;
  for (auto rows = table.rows(); rows.next();) fields.push_back(rows.fields()[0]);
  return fields;
}

std::vector<std::string> texts_of(ArrowColumn column) {
  const std::int64_t rows = column.length - column.offset;
  ArrowTable arrow({std::move(column)}, rows);
  const OpenTable table({arrow.read()}, {});
  EXPECT_EQ(arrow.not_released(), 0);
  std::vector<std::string> texts;
  for (const Field& field : fields_of(table)) {
    texts.push_back(field.text());
    EXPECT_EQ(field.is_missing(), field.text().empty());
    double direct = 0.0, parsed = 0.0;
    const std::errc error = data::parse_number(field.text(), '.', parsed);
    EXPECT_EQ(field.number('.', direct), error) << field.text();
    if (error == std::errc{}) {
      EXPECT_EQ(direct, parsed) << field.text();
    }
    EXPECT_EQ(field.truth(), data::parse_truth(field.text())) << field.text();
    EXPECT_EQ(field.date(DateForm::month_first, '.'), data::parse_date(field.text())) << field.text();
  }
  return texts;
}

template <class T>
std::vector<std::string> ends_of(const char* format) {
  using Limits = std::numeric_limits<T>;
  return texts_of(arrow_column<T>(format, {Limits::lowest(), 0, Limits::max()}));
}

using Texts = std::vector<std::string>;

TEST(Arrow, NumbersAreThoseOfTheirTexts) {
  EXPECT_EQ(ends_of<std::int8_t>("c"), (Texts{"-128", "0", "127"}));
  EXPECT_EQ(ends_of<std::uint8_t>("C"), (Texts{"0", "0", "255"}));
  EXPECT_EQ(ends_of<std::int16_t>("s"), (Texts{"-32768", "0", "32767"}));
  EXPECT_EQ(ends_of<std::uint16_t>("S"), (Texts{"0", "0", "65535"}));
  EXPECT_EQ(ends_of<std::int32_t>("i"), (Texts{"-2147483648", "0", "2147483647"}));
  EXPECT_EQ(ends_of<std::uint32_t>("I"), (Texts{"0", "0", "4294967295"}));
  EXPECT_EQ(ends_of<std::int64_t>("l"), (Texts{"-9223372036854775808", "0", "9223372036854775807"}));
  EXPECT_EQ(ends_of<std::uint64_t>("L"), (Texts{"0", "0", "18446744073709551615"}));
  EXPECT_EQ(texts_of(arrow_column<std::int64_t>("l", {9007199254740993})), (Texts{"9007199254740993"}));
  EXPECT_EQ(texts_of(arrow_column<float>("f", {0.1f, NAN, -INFINITY})), (Texts{"0.10000000149011612", "", "-inf"}));
  EXPECT_EQ(texts_of(arrow_column<double>("g", {0.1, 1e300, -0.0})), (Texts{"0.1", "1e+300", "-0"}));
  EXPECT_EQ(texts_of(arrow_column<std::uint16_t>("e", {0x3800, 0x8001, 0x7bff})),
            (Texts{"0.5", "-5.960464477539063e-08", "65504"}));
  EXPECT_EQ(texts_of(arrow_column<std::int64_t>("d:10,2,64", {-5, 12345})), (Texts{"-0.05", "123.45"}));
  EXPECT_EQ(texts_of(arrow_column<std::int32_t>("d:5,-3,32", {-5, 0})), (Texts{"-5000", "0000"}));
  EXPECT_EQ(texts_of({"b", 3, {std::string("\x5"), std::string("\x4")}}), (Texts{"false", "", "true"}));
}

TEST(Arrow, NumbersNeedNoDecimalMark) {
  for (const ArrowColumn& column : {arrow_column<double>("g", {1.234}), arrow_column<std::int64_t>("d:10,3,64", {1234}),
                                    ArrowColumn{"u", 1, {std::nullopt, bytes_of<std::int32_t>({0, 5}), "1,234"}}}) {
    ArrowTable arrow({column}, 1);
    const OpenTable table({arrow.read()}, {.delimiter = 0, .decimal = ',', .header = {}});
    auto rows = table.rows();
    ASSERT_TRUE(rows.next());
    data::ColumnKind kind = data::ColumnKind::number;
    EXPECT_EQ(rows.header().number(rows.fields(), 0, kind), 1.234) << column.format;
  }
}

TEST(Arrow, TextsAreInOffsetsViewsAndDictionaries) {
  const std::string texts = "onetwo\nlines";
  EXPECT_EQ(texts_of({"u", 3, {std::nullopt, bytes_of<std::int32_t>({0, 3, 3, 12}), texts}}),
            (Texts{"one", "", "two lines"}));
  EXPECT_EQ(texts_of({"U", 3, {std::string("\x2"), bytes_of<std::int64_t>({0, 3, 12, 12}), texts}, 1}),
            (Texts{"two lines", ""}));
  // As those of a file are: without the blanks around them.
  EXPECT_EQ(texts_of({"u", 3, {std::nullopt, bytes_of<std::int32_t>({0, 5, 9, 12}), std::string(" one tw o\t  ")}}),
            (Texts{"one", "tw o", ""}));
  const std::string longer = "more than twelve";
  std::string views = bytes_of<std::int32_t>({3}) + "abc" + std::string(9, '\0');
  views += bytes_of<std::int32_t>({16, 0, 0, 0});
  EXPECT_EQ(texts_of({"vu", 2, {std::nullopt, views, longer, bytes_of<std::int64_t>({16})}}), (Texts{"abc", longer}));
  const ArrowColumn words{"u", 2, {std::nullopt, bytes_of<std::int32_t>({0, 3, 6}), std::string("onetwo")}};
  ArrowColumn coded = arrow_column<std::uint8_t>("C", {1, 0, 1});
  coded.dictionary = std::make_shared<ArrowColumn>(words);
  EXPECT_EQ(texts_of(coded), (Texts{"two", "one", "two"}));
}

TEST(Arrow, TimesAreSecondsAsReadFromTheirTexts) {
  EXPECT_EQ(texts_of(arrow_column<std::int32_t>("tdD", {-1, 19782})), (Texts{"1969-12-31", "2024-02-29"}));
  EXPECT_EQ(texts_of(arrow_column<std::int64_t>("tdm", {-86400000})), (Texts{"1969-12-31"}));
  EXPECT_EQ(texts_of(arrow_column<std::int64_t>("tss:", {46800})), (Texts{"1970-01-01T13:00:00"}));
  EXPECT_EQ(texts_of(arrow_column<std::int64_t>("tss:Asia/Tokyo", {0})), (Texts{"1970-01-01T00:00:00Z"}));
  EXPECT_EQ(texts_of(arrow_column<std::int64_t>("tsu:", {-750000})), (Texts{"1969-12-31T23:59:59.250000000"}));
  Random random(1);
  for (const char* format : {"tss:", "tsm:", "tsu:"}) {
    std::vector<std::int64_t> ticks;
    const std::int64_t a_second = format[2] == 's' ? 1 : format[2] == 'm' ? 1000 : 1'000'000;
    for (int i = 0; i < 1000; ++i) ticks.push_back((random.below(5'000'000'000) - 1'000'000'000) * a_second + i);
    (void)texts_of(arrow_column(format, ticks));  // which compares
  }
}

TEST(Arrow, ATimeOutsideOfTheCalendarIsNoDate) {
  constexpr auto most = std::numeric_limits<std::int64_t>::max(), least = std::numeric_limits<std::int64_t>::min();
  for (const char* format : {"tss:", "tsm:", "tdm"}) {
    for (const std::string& text : texts_of(arrow_column<std::int64_t>(format, {most, least, least + 1}))) {
      EXPECT_EQ(text, "a time outside of the years 1 to 9999");
    }
  }
  constexpr std::int64_t first = -62135596800, last = 253402300799;
  EXPECT_EQ(texts_of(arrow_column<std::int64_t>("tss:", {first - 1, first, last, last + 1})),
            (Texts{"a time outside of the years 1 to 9999", "0001-01-01", "9999-12-31T23:59:59",
                   "a time outside of the years 1 to 9999"}));
}

TEST(Arrow, RowsThatABatchLacksAreMissing) {
  ArrowTable arrow({arrow_column<double>("g", {1.0, 2.0, 3.0})}, 3, std::string("\x5"));
  const OpenTable table({arrow.read()}, {});
  const std::vector<Field> fields = fields_of(table);
  EXPECT_EQ(fields[0].text() + "," + fields[1].text() + "," + fields[2].text(), "1,,3");
}

TEST(Arrow, DamagedArraysAreRefused) {
  const auto refuses = [](const ArrowColumn& column, const char* what, std::int64_t rows = 1) {
    ArrowTable arrow({column}, rows);
    expect_error(ErrorCode::bad_input, std::string("the table: column \"x\": the Arrow data are damaged: ") + what,
                 [&] { (void)arrow.read(); });
    EXPECT_EQ(arrow.not_released(), 0);
  };
  refuses(arrow_column<double>("g", {1.0}), "it is shorter than its batch", 2);
  refuses({"g", 1, {std::nullopt}}, "a buffer is missing");
  refuses({"g", 1, {std::nullopt, std::nullopt}}, "a buffer is missing");
  refuses({"u", 1, {std::nullopt, bytes_of<std::int32_t>({2, 1}), "abc"}}, "a text has a negative length or offset");
  refuses({"u", 1, {std::nullopt, bytes_of<std::int32_t>({0, 1}), "\xff"}}, "a text is not UTF-8");
  refuses({"vu", 1, {std::nullopt, bytes_of<std::int32_t>({16, 0, 1, 0}), "", bytes_of<std::int64_t>({0})}},
          "a text is in a buffer that is missing");
  refuses({"vu", 1, {std::nullopt, bytes_of<std::int32_t>({16, 0, 0, 1}), "", bytes_of<std::int64_t>({16})}},
          "a text ends outside of its buffer");
  ArrowColumn coded = arrow_column<std::int8_t>("c", {1});
  coded.dictionary = std::make_shared<ArrowColumn>(arrow_column<double>("g", {1.0}));
  refuses(coded, "its dictionary lacks a value");
}

/// The features of all rows and the texts of their first column.
std::string rows_of(const Table& table, const DataDescription& data) {
  Rows rows(table, data, {.keep = {data.inputs[0].name}, .format = {}});
  std::string all;
  while (rows.next() == Rows::Kind::row) {
    for (const float feature : rows.features()) all += std::to_string(feature) + ' ';
    all += rows.kept()[0] + '\n';
  }
  return all;
}

TEST(Arrow, RowsOfColumnsAreThoseOfText) {
  DataDescription data;
  data.task = Task::forecast;
  data.inputs = {{"x", 1.0, 2.0}, {"on", 0.5, 0.5}};
  data.table.missing = Missing::carry;
  ArrowColumn truths{"b", 3, {std::nullopt, std::string("\x5")}};
  truths.name = "on";
  ArrowTable arrow({truths, {"l", 3, {std::string("\x5"), bytes_of<std::int64_t>({3, 0, 5})}}}, 3);
  const Table text{"the table", "on,x\ntrue,3\nfalse,\"\"\ntrue,5\n"};
  EXPECT_EQ(rows_of(arrow.read(), data), rows_of(text, data));
  data.table.missing = Missing::refuse;
  expect_error(ErrorCode::bad_input, "the table:3:2: column \"x\": the value is missing",
               [&] { (void)rows_of(arrow.read(), data); });
  data.table.header = false;
  data.inputs = {{"column2", 1.0, 2.0}};
  data.table.missing = Missing::carry;
  EXPECT_EQ(rows_of(arrow.read(), data), "1.000000 3\n1.000000 \n2.000000 5\n") << "by their places";
}

}  // namespace
}  // namespace penstock
