#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "data/table/dates.h"
#include "data/table/missing_words.h"
#include "data/table/number.h"

namespace penstock::data {
namespace {

double number(const char* text, char decimal = '.') {
  double value = -1.0;
  return parse_number(text, decimal, value) == std::errc{} ? value : std::nan("");
}

TEST(Number, FormsOfNumbers) {
  EXPECT_EQ(number("1234.5"), 1234.5);
  EXPECT_EQ(number("1,234.5"), 1234.5);
  EXPECT_EQ(number("1.234,5", ','), 1234.5);
  EXPECT_EQ(number("-1.234.567,25", ','), -1234567.25);
  EXPECT_EQ(number("1 234 567,25", ','), 1234567.25);
  EXPECT_EQ(number("1\xc2\xa0"
                   "234,5",
                   ','),
            1234.5);
  EXPECT_EQ(number("1'234.5"), 1234.5);
  EXPECT_EQ(number("0,5e3", ','), 500.0);
  EXPECT_EQ(number(",5", ','), 0.5);
  EXPECT_EQ(number("+7", ','), 7.0);
  EXPECT_EQ(number("12.5 %"), 12.5);
  EXPECT_EQ(number("12.5\xc2\xa0%"), 12.5);
  EXPECT_EQ(number("12.5\xe2\x80\xaf%"), 12.5);
  EXPECT_EQ(number("12,5\xc2\xa0%", ','), 12.5);
  EXPECT_EQ(number("\xe2\x88\x92"
                   "3.5"),
            -3.5);
  EXPECT_EQ(number("$1,234.50"), 1234.5);
  EXPECT_EQ(number("-$3"), -3.0);
  EXPECT_EQ(number("$-3"), -3.0);
  EXPECT_EQ(number("\xc2\xa3 5"), 5.0);
  EXPECT_EQ(number("1.234,50 \xe2\x82\xac", ','), 1234.5);
  EXPECT_EQ(number("($1,234.50)"), -1234.5);
  EXPECT_EQ(number("(7)"), -7.0);
  for (const char* text : {"$", "()", "(-3)", "($)", "(3", "3)", "$$3", "-$-3", "$3$ 4", "US$3", "3 %%"}) {
    EXPECT_TRUE(std::isnan(number(text))) << text;
  }
  for (const char* text : {"", "%", "\xa0%", "1,23", "12,3456", "1,234,56", "1,234'567", "1..5", "1.5.5", "- 5", "1,",
                           ",123", "1 2", "--5", "5 kg", "1,234,", "0x10", "1e5,000"}) {
    EXPECT_TRUE(std::isnan(number(text))) << text;
  }
  for (const char* text : {"1,2,3", "1.5", "1,5.5", "1.23", "1,5,"}) EXPECT_TRUE(std::isnan(number(text, ','))) << text;
}

TEST(Number, MissingAndTruth) {
  for (const char* text : {"", "NA", "n/a", "NaN", "nan", "NULL", "None", "?", "-", "n.a.", "#N/A", "<NA>"})
    EXPECT_TRUE(is_missing(text)) << text;
  for (const char* text : {"0", "nano", "no", "--", "."}) EXPECT_FALSE(is_missing(text)) << text;
  EXPECT_EQ(parse_boolean("True"), 1.0);
  EXPECT_EQ(parse_boolean("no"), 0.0);
  EXPECT_EQ(parse_boolean("1"), std::nullopt);
  EXPECT_EQ(parse_boolean("y"), std::nullopt) << "which is also the name of a column";
  for (const char* text : {"TRUE", "yes", "Y", "On", "Ja", "WAHR", "oui", "Vrai", "si", "S\xc3\x8d", "sim", "tak"}) {
    EXPECT_EQ(parse_truth(text), 1.0) << text;
  }
  for (const char* text : {"false", "No", "n", "OFF", "nein", "FALSCH", "non", "faux", "N\xc3\x83O", "nee", "nie"}) {
    EXPECT_EQ(parse_truth(text), 0.0) << text;
  }
  for (const char* text : {"", "1", "maybe", "jaja", "north"}) EXPECT_EQ(parse_truth(text), std::nullopt) << text;
  EXPECT_TRUE(are_opposites("JA", "nein"));
  EXPECT_TRUE(are_opposites("n", "S"));
  EXPECT_FALSE(are_opposites("ja", "no"));
  EXPECT_FALSE(are_opposites("yes", "Yes"));
  EXPECT_FALSE(are_opposites("N", "E"));
}

/// In seconds since 1970.
constexpr double day = 86400.0, march_4_2020 = 18325.0 * day;

TEST(Dates, UsualForms) {
  for (const char* text : {"2020-03-04",
                           "2020/03/04",
                           "2020.03.04",
                           "20200304",
                           "03/04/2020",
                           "04.03.2020",
                           "4.3.2020",
                           "04-03-2020",
                           "4 Mar 2020",
                           "4-Mar-20",
                           "4-mar-2020",
                           "Mar 4, 2020",
                           "March 4, 2020",
                           "2020-03-04T00:00",
                           "2020-03-04 00:00:00",
                           "2020-03-04T01:00:00+01:00",
                           "2020-Mar-04",
                           "2020-03-04 00:00:00 UTC",
                           "2020-03-04 00:00 GMT",
                           "2020-03-04T01:00+01:00[Europe/Berlin]"}) {
    EXPECT_EQ(parse_date(text), march_4_2020) << text;
  }
  EXPECT_EQ(parse_date("04/03/2020", DateForm::day_first), march_4_2020);
  EXPECT_EQ(parse_date("2020-03-04T12:30:15.5Z"), march_4_2020 + 45015.5);
  EXPECT_EQ(parse_date("03/04/2020 1:05 PM"), march_4_2020 + 13.0 * 3600 + 300);
  EXPECT_EQ(parse_date("12/31/1969 12:00 AM"), -day);
  for (const char* text : {"1949-01", "Jan-1949", "January 1949", "1949Q1", "1949-Q1", "1949M01", "1949M1"}) {
    EXPECT_EQ(parse_date(text), -7670.0 * day) << text;
  }
  EXPECT_EQ(parse_date("2020-W10"), march_4_2020 - 2.0 * day) << "its Monday";
  EXPECT_EQ(parse_date("2021-W01"), 18631.0 * day) << "the first Monday of that year's weeks";
  EXPECT_EQ(parse_date("2020-02-29"), march_4_2020 - 4.0 * day);
  for (const char* text : {"",
                           "2019-02-29",
                           "2020-13-01",
                           "2020-00-10",
                           "2020.03",
                           "12345678",
                           "1.5",
                           "12:30",
                           "hello 12",
                           "Marvin 2",
                           "32/01/2020",
                           "04.03.",
                           "04.03.T12:30",
                           "04/03/",
                           "2020-03-04x",
                           "2020-03-04 25:00",
                           "99999999",
                           "1.234.567",
                           "2020-03-04 12:00 UTC+",
                           "2020-03-04 12:00+01:00+01:00",
                           "2020-03-04 12:00 [x",
                           "2020-03-04 12:00 CET"}) {
    EXPECT_EQ(parse_date(text), std::nullopt) << text;
  }
}

TEST(Dates, OrderOfDayAndMonth) {
  bool ambiguous = false;
  const auto fields = [](const char* first, const char* second) {
    return std::vector<Field>{{first, 1, 1}, {second, 2, 1}};
  };
  const std::vector<Field> us = fields("01/02/2020", "01/25/2020"), eu = fields("01/02/2020", "25/01/2020");
  const std::vector<Field> either = fields("01/02/2020", "03/04/2020");
  EXPECT_EQ(text_form(us, &ambiguous), DateForm::month_first);
  EXPECT_FALSE(ambiguous);
  EXPECT_EQ(text_form(eu, &ambiguous), DateForm::day_first);
  EXPECT_FALSE(ambiguous);
  EXPECT_EQ(text_form(either, &ambiguous), DateForm::month_first);
  EXPECT_TRUE(ambiguous);
}

TEST(Dates, NumbersThatCountDays) {
  const std::vector<double> excel = {43894.0, 43895.5}, years = {1949, 1950}, digits = {20200304, 20200305};
  EXPECT_EQ(number_form("Date", excel), DateForm::excel);
  EXPECT_EQ(date_from_number(43895.5, DateForm::excel), march_4_2020 + 1.5 * day);
  EXPECT_EQ(number_form("year", years), DateForm::year);
  EXPECT_EQ(date_from_number(1949, DateForm::year), -7670.0 * day);
  EXPECT_EQ(number_form("day", digits), DateForm::digits);
  EXPECT_EQ(date_from_number(20200304, DateForm::digits), march_4_2020);
  EXPECT_EQ(date_from_number(20200230, DateForm::digits), std::nullopt);
  const std::vector<double> seconds = {march_4_2020, march_4_2020 + day}, milliseconds = {1e3 * march_4_2020, 2e12};
  EXPECT_EQ(number_form("time", seconds), DateForm::seconds);
  EXPECT_EQ(number_form("time", milliseconds), DateForm::milliseconds);
  EXPECT_EQ(number_form("price", excel), std::nullopt) << "of another name";
  const std::vector<double> falls = {43895.0, 43894.0}, small = {1.0, 2.0};
  EXPECT_EQ(number_form("Date", falls), std::nullopt);
  EXPECT_EQ(number_form("day", small), std::nullopt);
  EXPECT_EQ(Field("43.894", 1, 1).date(DateForm::excel, ','), march_4_2020);
  EXPECT_EQ(Field("04/03/2020", 1, 1).date(DateForm::day_first, '.'), march_4_2020);
  EXPECT_EQ(Field("soon", 1, 1).date(DateForm::seconds, '.'), std::nullopt);
}

}  // namespace
}  // namespace penstock::data
