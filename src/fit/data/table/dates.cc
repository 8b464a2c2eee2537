#include "data/table/dates.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <chrono>
#include <cmath>

#include "base/lower_case.h"
#include "data/table/number.h"

namespace penstock::data {
namespace {

constexpr double seconds_a_day = 86400.0;

double seconds_of(std::chrono::sys_days day) {
  return static_cast<double>(day.time_since_epoch().count()) * seconds_a_day;
}

/// The seconds of a day of the Gregorian calendar; nothing if it has no such day.
std::optional<double> day(int year, int month, int day_of_month) {
  if (year < 1 || year > 9999 || month < 1 || day_of_month < 1) return std::nullopt;
  const auto date = std::chrono::year(year) / month / day_of_month;
  return date.ok() ? std::optional(seconds_of(date)) : std::nullopt;
}

/// Reads a text from the front; each function leaves it alone when it finds something else.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  bool done() const { return text_.empty(); }
  bool skip(char c) {
    if (!text_.starts_with(c)) return false;
    text_.remove_prefix(1);
    return true;
  }
  void skip_blanks() {
    while (skip(' ')) {
    }
  }
  /// A number of so many digits; -1 otherwise.
  int digits(std::size_t fewest, std::size_t most) {
    std::size_t count = 0;
    while (count < text_.size() && text_[count] >= '0' && text_[count] <= '9') ++count;
    if (count < fewest || count > most) return -1;
    int value = 0;
    std::from_chars(text_.data(), text_.data() + count, value);
    text_.remove_prefix(count);
    return value;
  }
  /// 1 to 12 for the English name of a month, whole or its first three letters; 0 otherwise.
  int month() {
    static constexpr std::array<std::string_view, 12> names = {"january",   "february", "march",    "april",
                                                               "may",       "june",     "july",     "august",
                                                               "september", "october",  "november", "december"};
    std::string word;
    while (word.size() < text_.size() && std::isalpha(static_cast<unsigned char>(text_[word.size()]))) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(text_[word.size()])));
    }
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (word != names[i] && word != names[i].substr(0, 3)) continue;
      text_.remove_prefix(word.size());
      skip('.');
      return static_cast<int>(i) + 1;
    }
    return 0;
  }
  /// ".25" as 0.25; 0 if there is none.
  double fraction() {
    if (!text_.starts_with('.') && !text_.starts_with(',')) return 0.0;
    double value = 0.0, unit = 0.1;
    for (text_.remove_prefix(1); !text_.empty() && text_[0] >= '0' && text_[0] <= '9'; text_.remove_prefix(1)) {
      value += unit * (text_[0] - '0');
      unit *= 0.1;
    }
    return value;
  }
  /// A word, which is given in lower case, in any case.
  bool skip_word(std::string_view word) {
    if (lower_case(text_.substr(0, word.size())) != word) return false;
    text_.remove_prefix(word.size());
    return true;
  }
  /// "[Europe/Berlin]" at the end.
  void skip_area() {
    if (text_.starts_with('[') && text_.find(']') == text_.size() - 1) text_ = {};
  }
  /// The next character, in lower case; 0 at the end.
  char peek() const {
    return text_.empty() ? '\0' : static_cast<char>(std::tolower(static_cast<unsigned char>(text_[0])));
  }

 private:
  std::string_view text_;
};

/// "Z", "UTC", "GMT", "+01:00", "+0100", "-05", with "[Europe/Berlin]" behind it; nothing there is UTC as well.
std::optional<double> zone_seconds(Scanner& scan) {
  scan.skip_blanks();
  if (scan.done() || scan.skip_word("z") || scan.skip_word("utc") || scan.skip_word("gmt")) return 0.0;
  const bool west = scan.peek() == '-';
  if (!scan.skip('+') && !scan.skip('-')) return std::nullopt;
  int hours = scan.digits(2, 2), minutes = 0;
  if (hours < 0) {
    const int both = scan.digits(4, 4);
    hours = both < 0 ? -1 : both / 100;
    minutes = both % 100;
  } else if (scan.skip(':')) {
    minutes = scan.digits(2, 2);
  }
  if (hours < 0 || hours > 15 || minutes < 0 || minutes > 59) return std::nullopt;
  return (west ? 1.0 : -1.0) * (3600.0 * hours + 60.0 * minutes);
}

/// Returns the time of day that may follow a day, in seconds; 0 if the text ends.
std::optional<double> time_of_day(Scanner scan) {
  if (scan.done()) return 0.0;
  if (!scan.skip('T') && !scan.skip('t') && !scan.skip(' ') && !scan.skip('-')) return std::nullopt;
  scan.skip_blanks();
  int hour = scan.digits(1, 2);
  if (hour < 0 || !scan.skip(':')) return std::nullopt;
  const int minute = scan.digits(2, 2);
  double second = 0.0;
  if (scan.skip(':')) {
    const int whole = scan.digits(2, 2);
    if (whole < 0) return std::nullopt;
    second = whole + scan.fraction();
  }
  scan.skip_blanks();
  if (const char half = scan.peek(); half == 'a' || half == 'p') {
    scan.skip('a'), scan.skip('A'), scan.skip('p'), scan.skip('P');
    if (hour < 1 || hour > 12 || (!scan.skip('m') && !scan.skip('M'))) return std::nullopt;
    hour = hour % 12 + (half == 'p' ? 12 : 0);
  }
  const auto zone = zone_seconds(scan);
  scan.skip_area();
  if (!zone || hour > 24 || minute < 0 || minute > 59 || second >= 61.0) return std::nullopt;
  if (!scan.done()) return std::nullopt;
  return 3600.0 * hour + 60.0 * minute + second + *zone;
}

std::optional<double> at(std::optional<double> day_seconds, const Scanner& rest) {
  const auto time = time_of_day(rest);
  if (!day_seconds || !time) return std::nullopt;
  return *day_seconds + *time;
}

/// Two digits are a year from 1970 to 2069; -1, no digits, stays -1.
int full_year(int digits) { return digits < 0 ? -1 : digits < 70 ? 2000 + digits : 1900 + digits; }

/// The Monday of a week as ISO 8601 counts them: the first one holds the 4th of January.
double monday_of(int year, int week) {
  const std::chrono::sys_days fourth = std::chrono::year(year) / 1 / 4;
  return seconds_of(fourth - (std::chrono::weekday(fourth) - std::chrono::Monday) + std::chrono::weeks(week - 1));
}

/// 2020-03-04, 2020-03, 2020Q1, 2020M03, 2020-W10 and 20200304.
std::optional<double> year_first(Scanner scan) {
  Scanner whole = scan;
  if (const int all = whole.digits(8, 8); all >= 0) return at(day(all / 10000, all / 100 % 100, all % 100), whole);
  const int year = scan.digits(4, 4);
  if (year < 0 || scan.done()) return std::nullopt;
  const bool slash = scan.peek() == '/', dot = scan.peek() == '.';
  const bool separated = scan.skip('-') || scan.skip('/') || scan.skip('.') || scan.skip(' ');
  const char letter = scan.peek();
  if (letter == 'q' || letter == 'w' || (letter == 'm' && !separated)) {
    for (const char c : {'q', 'Q', 'w', 'W', 'm', 'M'}) scan.skip(c);
    const int number = scan.digits(1, 2);
    if (number < 1 || !scan.done() || number > (letter == 'q' ? 4 : letter == 'm' ? 12 : 53)) return std::nullopt;
    if (letter == 'w') return monday_of(year, number);
    return day(year, letter == 'q' ? 3 * number - 2 : number, 1);
  }
  if (!separated) return std::nullopt;
  int month = scan.digits(1, 2);
  if (month < 0) month = scan.month();
  if (scan.done()) return dot ? std::nullopt : day(year, month, 1);  // 2020.03 is a number
  if (!scan.skip(slash ? '/' : dot ? '.' : '-')) return std::nullopt;
  return at(day(year, month, scan.digits(1, 2)), scan);
}

/// 04.03.2020, 03/04/2020, 04-03-2020, 4 Mar 2020, 4-Mar-20.
std::optional<double> day_or_month_first(Scanner scan, DateForm form) {
  const int first = scan.digits(1, 2);
  if (first < 0) return std::nullopt;
  const char separator = scan.peek();
  if (separator != '.' && separator != '/' && separator != '-' && separator != ' ') return std::nullopt;
  scan.skip(separator);
  scan.skip_blanks();
  int second = scan.digits(1, 2), named = 0;
  if (second < 0) named = second = scan.month();
  if (second < 1) return std::nullopt;
  if (!scan.skip(separator) && (named == 0 || !scan.skip(','))) return std::nullopt;
  scan.skip_blanks();
  int year = scan.digits(4, 4);
  if (year < 0) year = separator == ' ' ? -1 : full_year(scan.digits(2, 2));
  const bool month_first = named == 0 && separator == '/' && form == DateForm::month_first;
  return at(month_first ? day(year, first, second) : day(year, second, first), scan);
}

/// Mar 4, 2020, Mar-2020 and March 2020.
std::optional<double> name_first(Scanner scan) {
  const int month = scan.month();
  if (month == 0) return std::nullopt;
  if (!scan.skip('-') && !scan.skip(' ') && !scan.skip('/')) return std::nullopt;
  scan.skip_blanks();
  if (const int year = scan.digits(4, 4); year >= 0) return scan.done() ? day(year, month, 1) : std::nullopt;
  const int day_of_month = scan.digits(1, 2);
  if (day_of_month < 0) return std::nullopt;
  if (scan.done()) return day(full_year(day_of_month), month, 1);
  scan.skip(',');
  scan.skip_blanks();
  return at(day(scan.digits(4, 4), month, day_of_month), scan);
}

/// Returns whether these are rising dates, except for a few that are no dates.
bool are_rising_dates(std::span<const double> values, DateForm form) {
  constexpr std::size_t least = 3, part = 10;  // a tenth, at least one, of three and more
  std::size_t others = 0;
  std::optional<double> first, last;
  for (const double value : values) {
    if (!date_from_number(value, form)) {
      ++others;
      continue;
    }
    if (last && value < *last) return false;
    first = first.value_or(value);
    last = value;
  }
  if (first == last) return false;
  return others == 0 || (values.size() - others >= least && others <= std::max<std::size_t>(1, values.size() / part));
}

}  // namespace

std::optional<double> parse_date(std::string_view text, DateForm form) {
  constexpr std::size_t shortest = 6, longest = 40;
  if (text.size() < shortest || text.size() > longest) return std::nullopt;
  const Scanner scan(text);
  if (const auto date = year_first(scan)) return date;
  if (const auto date = day_or_month_first(scan, form)) return date;
  return name_first(scan);
}

bool is_time_of_day(std::string_view text) {
  return text.find(':') != text.npos && time_of_day(Scanner(std::string("T").append(text))).has_value();
}

std::string_view zone_of(std::string_view date) {
  const std::size_t time = std::min(date.find(':'), date.size());
  const std::size_t zone = date.find_first_of("+-ZzUuGg", time);
  return zone == date.npos ? std::string_view() : date.substr(zone);
}

bool looks_like_date(std::string_view text) {
  return parse_date(text, DateForm::month_first) || parse_date(text, DateForm::day_first);
}

bool are_mostly_dates(std::size_t dates, std::size_t fields) {
  constexpr std::size_t least = 3;  // fewer are an accident, unless all are
  return dates == fields || (dates >= least && 2 * dates > fields);
}

DateForm text_form(std::span<const Field> fields, bool* ambiguous) {
  std::size_t month_first = 0, day_first = 0;
  bool differ = false;
  for (const Field& field : fields) {
    const auto by_month = field.date(DateForm::month_first, '.'), by_day = field.date(DateForm::day_first, '.');
    month_first += by_month ? 1 : 0;
    day_first += by_day ? 1 : 0;
    differ = differ || by_month != by_day;
  }
  if (ambiguous != nullptr) *ambiguous = month_first == day_first && month_first > 0 && differ;
  return day_first > month_first ? DateForm::day_first : DateForm::month_first;
}

bool may_name_dates(std::string_view column) {
  const std::string name = lower_case(column);
  for (const char* word : {"date", "time", "day", "datum", "fecha", "jour", "period", "week", "month", "year"}) {
    if (name.find(word) != name.npos) return true;
  }
  return name == "ds" || name == "ts" || name == "zeit" || name == "tag" || name == "jahr";
}

std::optional<double> date_from_number(double value, DateForm form) {
  constexpr double excels_1970 = 25569.0;  // days
  const bool whole = value == std::floor(value);
  switch (form) {
    case DateForm::excel:
      if (!(value >= 10000.0 && value <= 80000.0)) return std::nullopt;  // 1927 to 2119
      return (value - excels_1970) * seconds_a_day;
    case DateForm::year:
      if (!whole || !(value >= 1000.0 && value <= 2999.0)) return std::nullopt;
      return day(static_cast<int>(value), 1, 1);
    case DateForm::digits: {
      if (!whole || !(value >= 19000101.0 && value <= 21001231.0)) return std::nullopt;
      const int digits = static_cast<int>(value);
      return day(digits / 10000, digits / 100 % 100, digits % 100);
    }
    case DateForm::seconds:
      return value >= 1e8 && value <= 5e9 ? std::optional(value) : std::nullopt;
    case DateForm::milliseconds:
      return whole && value >= 1e11 && value <= 5e12 ? std::optional(value / 1000.0) : std::nullopt;
    case DateForm::month_first:
    case DateForm::day_first:
      break;
  }
  return std::nullopt;
}

std::optional<DateForm> number_form(std::string_view column, std::span<const double> values) {
  if (!may_name_dates(column)) return std::nullopt;
  const std::string name = lower_case(column);
  const bool of_years = name.find("year") != name.npos || name == "jahr" || name == "date";
  for (const DateForm form :
       {DateForm::year, DateForm::excel, DateForm::digits, DateForm::seconds, DateForm::milliseconds}) {
    if (form == DateForm::year && !of_years) continue;
    if (are_rising_dates(values, form)) return form;
  }
  return std::nullopt;
}

}  // namespace penstock::data
