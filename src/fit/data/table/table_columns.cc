#include "data/table/table_columns.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <utility>

#include "data/table/missing_words.h"
#include "data/table/number.h"

namespace penstock::data {
namespace {

constexpr std::int64_t whole_day = 86400;  // seconds

/// A moment in the calendar.
struct Moment {
  std::int64_t day, second;  ///< Since the start of 1970, and of the day.
  std::int64_t ticks;        ///< Of the second.
};

/// Nothing outside the years 1 to 9999, where no date is read from a text either.
std::optional<Moment> moment_of(std::int64_t ticks, std::int64_t a_second) {
  constexpr std::int64_t first_day = -719162, last_day = 2932896;  // 0001-01-01, 9999-12-31
  const auto divided = [](std::int64_t value, std::int64_t unit) {
    const bool below = value % unit < 0;
    return std::pair(value / unit - (below ? 1 : 0), value % unit + (below ? unit : 0));
  };
  const auto [seconds, rest] = divided(ticks, a_second);
  const auto [day, second] = divided(seconds, whole_day);
  if (day < first_day || day > last_day) return std::nullopt;
  return Moment{day, second, rest};
}

void blank_line_breaks(std::string::iterator begin, std::string::iterator end) {
  std::replace_if(
      begin, end, [](char c) { return c == '\n' || c == '\r'; }, ' ');
}

}  // namespace

TableColumn::TableColumn(std::string name, Type type) : name_(std::move(name)), type_(type) {
  blank_line_breaks(name_.begin(), name_.end());
}

TableColumn::TableColumn(std::string name, std::int64_t ticks_a_second, bool utc)
    : TableColumn(std::move(name), Type::time) {
  ticks_a_second_ = ticks_a_second;
  utc_ = utc;
}

void TableColumn::add_missing() {
  missing_.push_back(true);
  if (is_text()) {
    ends_.push_back(characters_.size());
  } else {
    values_.push_back(0);
  }
}

void TableColumn::add(std::int64_t value) {
  missing_.push_back(false);
  values_.push_back(value);
}

void TableColumn::add(double value) {
  missing_.push_back(std::isnan(value));
  values_.push_back(std::bit_cast<std::int64_t>(value));
}

void TableColumn::add(std::string_view text) {
  constexpr std::string_view blanks = " \t";  // which no field of a file has around it either
  text.remove_prefix(std::min(text.find_first_not_of(blanks), text.size()));
  text = text.substr(0, text.find_last_not_of(blanks) + 1);
  missing_.push_back(false);
  characters_ += text;
  blank_line_breaks(characters_.end() - static_cast<std::ptrdiff_t>(text.size()), characters_.end());
  ends_.push_back(characters_.size());
}

std::string_view TableColumn::characters(std::size_t row) const {
  const std::size_t begin = row == 0 ? 0 : ends_[row - 1];
  return std::string_view(characters_).substr(begin, ends_[row] - begin);
}

bool TableColumn::is_missing(std::size_t row) const {
  return missing_[row] || (type_ == Type::text && data::is_missing(characters(row)));
}

std::optional<double> TableColumn::number(std::size_t row) const {
  if (missing_[row]) return std::nullopt;
  switch (type_) {
    case Type::whole:
      return static_cast<double>(values_[row]);
    case Type::unsigned_whole:
      return static_cast<double>(static_cast<std::uint64_t>(values_[row]));
    case Type::number:
      return std::bit_cast<double>(values_[row]);
    case Type::decimal: {
      double value = 0.0;
      return parse_number(characters(row), '.', value) == std::errc{} ? std::optional(value) : std::nullopt;
    }
    default:
      return std::nullopt;
  }
}

std::optional<double> TableColumn::truth(std::size_t row) const {
  if (missing_[row] || type_ != Type::truth) return std::nullopt;
  return static_cast<double>(values_[row]);
}

std::optional<double> TableColumn::seconds(std::size_t row) const {
  if (missing_[row] || type_ != Type::time) return std::nullopt;
  const auto moment = moment_of(values_[row], ticks_a_second_);
  if (!moment) return std::nullopt;
  const double fraction = static_cast<double>(moment->ticks) / static_cast<double>(ticks_a_second_);
  return static_cast<double>(moment->day * whole_day) + (static_cast<double>(moment->second) + fraction);
}

/// "2024-02-29", or with "T13:00:00", ".250000000" and "Z" behind it, as far as they say something.
std::string TableColumn::time_text(std::int64_t ticks) const {
  const auto moment = moment_of(ticks, ticks_a_second_);
  if (!moment) return "a time outside of the years 1 to 9999";
  const auto [day, second, rest] = *moment;
  const std::chrono::year_month_day date{std::chrono::sys_days{std::chrono::days{day}}};
  std::string text = fmt::format("{:04}-{:02}-{:02}", static_cast<int>(date.year()),
                                 static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()));
  if (second == 0 && rest == 0 && !utc_) return text;
  text += fmt::format("T{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60);
  if (rest > 0) text += fmt::format(".{:09}", rest * (1'000'000'000 / ticks_a_second_));
  return utc_ ? text + 'Z' : text;
}

std::string TableColumn::text(std::size_t row) const {
  if (missing_[row]) return {};
  switch (type_) {
    case Type::whole:
      return fmt::format("{}", values_[row]);
    case Type::unsigned_whole:
      return fmt::format("{}", static_cast<std::uint64_t>(values_[row]));
    case Type::number:
      return fmt::format("{}", std::bit_cast<double>(values_[row]));
    case Type::truth:
      return values_[row] != 0 ? "true" : "false";
    case Type::time:
      return time_text(values_[row]);
    default:
      return std::string(characters(row));
  }
}

std::vector<Field> TableColumns::header() const {
  std::vector<Field> fields;
  for (const TableColumn& column : columns_) {
    fields.emplace_back(column.name(), 1, static_cast<Index>(fields.size()) + 1);
  }
  return fields;
}

bool TableColumns::read(std::size_t row, std::vector<Field>& fields) const {
  if (row == rows()) return false;
  fields.resize(columns_.size());
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    fields[i].refer(columns_[i], row, static_cast<Index>(row) + 2, static_cast<Index>(i) + 1);
  }
  return true;
}

}  // namespace penstock::data
