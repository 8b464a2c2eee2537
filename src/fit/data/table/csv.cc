#include "data/table/csv.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "base/check.h"
#include "base/plural.h"
#include "base/quote.h"
#include "data/table/number.h"
#include "data/text_encoding.h"

namespace penstock::data {
namespace {

template <class... Args>
[[noreturn]] void fail_at(std::string_view source, Index line, Index column, fmt::format_string<Args...> format,
                          Args&&... args) {
  fail(ErrorCode::bad_input, "{}:{}:{}: {}", source, line, column, fmt::format(format, std::forward<Args>(args)...));
}

/// pandas writes its index as a first column whose name is empty, and reads it back under such a name.
bool is_no_name(const std::string& text) { return text.empty() || text.starts_with("Unnamed: "); }

}  // namespace

bool can_delimit(char delimiter) {
  constexpr std::string_view forbidden = "\"\r\n+-.0123456789";
  const bool letter = (delimiter >= 'a' && delimiter <= 'z') || (delimiter >= 'A' && delimiter <= 'Z');
  return !letter && delimiter != '\0' && forbidden.find(delimiter) == forbidden.npos;
}

void append_quoted(std::string_view text, std::string& table) {
  table += '"';
  for (const char c : text) {
    if (c == '"') table += '"';
    table += c == '\n' || c == '\r' ? ' ' : c;
  }
  table += '"';
}

void check_delimiter(char delimiter) {
  require_argument(can_delimit(delimiter), "delimiter", fmt::format("{:?}", delimiter),
                   "a character that no number contains (such as ',' ';' or a tab)");
}

CsvReader::CsvReader(std::string_view text, char delimiter, std::string_view source, Index line)
    : text_(text), delimiter_(delimiter), source_(source), line_(line) {
  check_delimiter(delimiter);
  if (text_.starts_with("\xef\xbb\xbf")) text_.remove_prefix(3);
}

bool CsvReader::next(std::vector<Field>& fields) {
  if (only_blanks_left()) return false;
  const Index line = line_;
  std::size_t count = 0;
  do {
    if (count == fields.size()) fields.emplace_back();
    read_field(fields[count++]);
  } while (pass_delimiter());
  fields.resize(count);
  if (count == 1 && fields[0].text().empty() && column() == 1) fail_at(source_, line, 1, "blank line between the rows");
  end_line();
  return true;
}

void CsvReader::read_field(Field& field) {
  skip_blanks();
  std::string& text = field.start(line_, column());
  if (position_ < text_.size() && text_[position_] == '"') {
    read_quoted(field, text);
    constexpr std::string_view blanks = " \t";  // which a field without quotes or of a table in memory loses, too
    text.erase(text.find_last_not_of(blanks) + 1);
    text.erase(0, text.find_first_not_of(blanks));
    return;
  }
  const std::size_t begin = position_;
  while (!at_line_end() && !ends_field(text_[position_])) ++position_;
  std::size_t end = position_;
  while (end > begin && is_blank(text_[end - 1])) --end;
  text = text_.substr(begin, end - begin);
}

/// Returns whether another field follows in the record.
bool CsvReader::pass_delimiter() {
  if (delimiter_ == ' ') {
    skip_blanks();
    return !at_line_end();
  }
  if (at_line_end()) return false;
  ++position_;
  return true;
}

void CsvReader::read_quoted(const Field& field, std::string& text) {
  for (++position_;; ++position_) {
    if (position_ == text_.size()) fail_at(source_, field.line, field.column, "the quote is never closed");
    const char c = text_[position_];
    if (c == '"') {
      if (text_.substr(position_ + 1, 1) != "\"") break;
      ++position_;
    } else if (c == '\n' || (c == '\r' && text_.substr(position_ + 1, 1) != "\n")) {
      ++line_;
      line_begin_ = position_ + 1;
    }
    text += c;
  }
  ++position_;
  const bool apart = position_ < text_.size() && ends_field(text_[position_]);
  skip_blanks();
  if (!apart && !at_line_end() && !ends_field(text_[position_])) {
    fail_at(source_, line_, column(), "text after the closing quote of a field");
  }
}

void CsvReader::skip_blanks() {
  while (position_ < text_.size() && is_blank(text_[position_])) ++position_;
}

bool CsvReader::is_blank(char c) const { return c == ' ' || (c == '\t' && delimiter_ != '\t'); }

bool CsvReader::ends_field(char c) const { return c == delimiter_ || (delimiter_ == ' ' && c == '\t'); }

bool CsvReader::only_blanks_left() const {
  return std::all_of(text_.begin() + static_cast<std::ptrdiff_t>(position_), text_.end(),
                     [&](char c) { return is_blank(c) || c == '\n' || c == '\r'; });
}

bool CsvReader::at_line_end() const {
  return position_ == text_.size() || text_[position_] == '\n' || text_[position_] == '\r';
}

void CsvReader::end_line() {
  if (text_.substr(position_, 2) == "\r\n") ++position_;
  position_ = std::min(position_ + 1, text_.size());
  line_begin_ = position_;
  ++line_;
}

Index CsvReader::column() const { return static_cast<Index>(position_ - line_begin_) + 1; }

TableHeader::TableHeader(const std::vector<Field>& fields, std::string source, char decimal, bool named)
    : source_(std::move(source)), decimal_(decimal) {
  std::unordered_set<std::string> seen;
  for (const auto& field : fields) {
    unnamed_.push_back(named && is_no_name(field.text()));
    names_.push_back(named && !unnamed_.back() ? field.text() : fmt::format("column{}", names_.size() + 1));
    if (!named) continue;
    if (!io::is_utf8(field.text())) {
      fail_at(source_, field.line, field.column, "the column name {} is not UTF-8", in_quotes(field.text()));
    }
    if (!seen.insert(names_.back()).second) {
      fail_at(source_, field.line, field.column, "the header has two columns {}", in_quotes(names_.back()));
    }
  }
}

std::optional<std::size_t> TableHeader::find(std::string_view name) const {
  const auto end = names_.begin() + static_cast<std::ptrdiff_t>(width());
  const auto found = std::find(names_.begin(), end, name);
  if (found == end) return std::nullopt;
  return static_cast<std::size_t>(found - names_.begin());
}

std::size_t TableHeader::add_category(std::size_t column, const std::string& text) {
  names_.push_back(fmt::format("{} = {}", names_[column], text));
  unnamed_.push_back(false);
  categories_.push_back({column, text});
  return names_.size() - 1;
}

const TableHeader::Category* TableHeader::category(std::size_t column) const {
  return column < width() ? nullptr : &categories_[column - width()];
}

std::string list_of(std::vector<std::string> all, std::size_t most) {
  const std::size_t more = all.size() > most ? all.size() - most : 0;
  all.resize(all.size() - more);
  return fmt::format("{}{}", fmt::join(all, ", "), more > 0 ? fmt::format(" and {} more", more) : "");
}

std::string TableHeader::list() const {
  constexpr std::size_t most = 12;
  std::vector<std::string> quoted;
  for (std::size_t i = 0; i < width(); ++i) quoted.push_back(in_quotes(names_[i]));
  return list_of(std::move(quoted), most);
}

void TableHeader::check_width(const std::vector<Field>& record) const {
  if (record.size() == width()) return;
  // Point at the first field too many, or at the last one there is.
  const Field& place = record[std::min(width(), record.size() - 1)];
  fail_at(source_, place.line, place.column, "{}, the header has {}", counted(record.size(), "field"), width());
}

std::size_t TableHeader::column(const std::string& name, const std::string& argument) const {
  if (const auto found = find(name)) return *found;
  throw Error(ErrorCode::invalid_argument,
              {the_argument(argument), fmt::format(": {} has no column {}, only {}", source_, in_quotes(name), list())},
              {.argument = argument, .value = name, .choices = names_});
}

double TableHeader::number(const std::vector<Field>& record, std::size_t column, ColumnKind& kind) const {
  const Field& field = record[column];
  const auto mistake = [&](std::string_view problem, const Message& remedy = {}) {
    fail_with(ErrorCode::bad_input, remedy, "{}:{}:{}: column {}: {}", source_, field.line, field.column,
              in_quotes(names_[column]), problem);
  };
  if (field.is_missing()) {
    mistake("the value is missing", {the_option("missing"), " (carry, interpolate or mask) accepts such values"});
  }
  if (kind != ColumnKind::number) {
    if (const auto truth = field.truth()) {
      kind = ColumnKind::boolean;
      return *truth;
    }
    if (kind == ColumnKind::boolean) {
      mistake(in_quotes(field.text()) + " is neither true nor false",
              {the_option("categories"), " accepts columns of any text"});
    }
  }
  double value = 0.0;
  const std::errc error = field.number(decimal_, value);
  if (error == std::errc::result_out_of_range) mistake(in_quotes(field.text()) + " is beyond the range of numbers");
  if (error != std::errc{}) mistake(in_quotes(field.text()) + " is not a number");
  if (!std::isfinite(value)) mistake(in_quotes(field.text()) + " is not a finite number");
  kind = ColumnKind::number;
  return value;
}

const std::string& TableHeader::label(const std::vector<Field>& record, std::size_t column) const {
  const Field& field = record[column];
  if (field.text().empty()) {
    fail_at(source_, field.line, field.column, "column {}: the value is missing", in_quotes(names_[column]));
  }
  if (!io::is_utf8(field.text())) {
    fail_at(source_, field.line, field.column, "column {}: {} is not UTF-8", in_quotes(names_[column]),
            in_quotes(field.text()));
  }
  return field.text();
}

bool TableHeader::looks_numeric(const Field& field) const {
  double value = 0.0;
  return field.number(decimal_, value) != std::errc::invalid_argument;
}

std::optional<double> finite_number(std::string_view text) {
  double value = 0.0;
  if (parse_number(text, '.', value) != std::errc{} || !std::isfinite(value)) return std::nullopt;
  return value;
}

}  // namespace penstock::data
