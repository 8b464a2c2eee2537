#include "data/table/table_format.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "base/check.h"
#include "data/table/csv.h"
#include "data/table/dates.h"
#include "data/table/number.h"
#include "data/table/table_columns.h"

namespace penstock::data {
namespace {

using Records = std::vector<std::vector<Field>>;

constexpr std::size_t sample_records = 50;
constexpr std::size_t sample_bytes = std::size_t{1} << 18;

/// The first records under this delimiter, up to a mistake in their form.
Records sample(std::string_view content, char delimiter) {
  if (content.size() > sample_bytes) content = content.substr(0, content.rfind('\n', sample_bytes) + 1);
  Records records;
  try {
    CsvReader reader(content, delimiter, "");
    std::vector<Field> fields;
    while (records.size() < sample_records && reader.next(fields)) records.push_back(fields);
  } catch (const Error&) {
    // The reader of the whole table reports what is wrong there.
  }
  return records;
}

template <class Visit>
void for_each_value(const Records& records, const Visit& visit) {
  for (std::size_t row = 1; row < records.size(); ++row) {
    for (const Field& field : records[row]) visit(field);
  }
}

/// A fraction such as "1,5" decides. Groups alone, as in "1,234", are taken for fractions where the delimiter is a
/// semicolon: programs write those where the comma starts a fraction.
char find_decimal(const Records& records, char delimiter) {
  std::size_t points = 0, commas = 0, groups = 0;
  const auto count = [&](const Field& field) {
    const DecimalHint hint = decimal_hint(field.text());
    points += hint == DecimalHint::point ? 1 : 0;
    commas += hint == DecimalHint::comma ? 1 : 0;
    groups += hint == DecimalHint::comma_or_thousands ? 1 : 0;
  };
  for_each_value(records, count);
  if (records.size() == 1) {
    for (const Field& field : records[0]) count(field);
  }
  if (points == 0 && commas == 0 && delimiter == ';') return groups > 0 ? ',' : '.';
  return commas > points ? ',' : '.';
}

bool is_value(const Field& field, char decimal) {
  double value = 0.0;
  return field.is_missing() || parse_boolean(field.text()) || looks_like_date(field.text()) ||
         field.number(decimal, value) != std::errc::invalid_argument;
}

/// How well a delimiter explains the first records; more is better.
struct Score {
  int kind = 0;         // 3 several columns throughout, 2 in the first record at least, 1 one column throughout
  double values = 0.0;  // part of the fields that are numbers, dates and the like
  std::size_t columns = 0;

  auto operator<=>(const Score&) const = default;  // NOLINT(modernize-use-nullptr): not one in sight
};

Score score(const Records& records, char delimiter) {
  Score result;
  if (records.empty()) return result;
  result.columns = records[0].size();
  const bool even =
      std::all_of(records.begin(), records.end(), [&](const auto& record) { return record.size() == result.columns; });
  if (result.columns > 1) {
    result.kind = even ? 3 : 2;
  } else {
    result.kind = even ? 1 : 0;
  }
  const char decimal = find_decimal(records, delimiter);
  std::size_t fields = 0, values = 0;
  for_each_value(records, [&](const Field& field) {
    ++fields;
    values += is_value(field, decimal) ? 1 : 0;
  });
  // To a hundredth: a column of notes must not outweigh the number of columns.
  if (fields > 0) result.values = static_cast<double>(100 * values / fields);
  return result;
}

constexpr double all_values = 100.0;

/// Blanks are one only where all others leave lines that are no values: "2020-03-04 12:30" and "1 234" are.
char find_delimiter(std::string_view content) {
  char best = ',';
  std::optional<Score> best_score;
  for (const char delimiter : {',', ';', '\t', '|', ' '}) {
    const Score found = score(sample(content, delimiter), delimiter);
    const bool blank = delimiter == ' ';
    if (blank && (best_score->kind != 1 || best_score->values >= all_values || found.kind != 3)) continue;
    if (best_score && !(found > *best_score)) continue;
    best = delimiter;
    best_score = found;
  }
  return best;
}

/// A first row that holds values as the others do is no header. pandas numbers columns that have no names: 0, 1, 2
/// behind the empty name of its index.
bool find_header(const Records& records, char decimal) {
  if (records.size() < 2) return true;
  const auto& first = records[0];
  const auto is_number = [&](const Field& field) {
    double value = 0.0;
    return field.number(decimal, value) == std::errc{};
  };
  if (!std::all_of(first.begin(), first.end(), [&](const auto& f) { return is_value(f, decimal); })) return true;
  if (std::none_of(first.begin(), first.end(), is_number)) return true;
  bool numbered = first.size() > 1 && first[0].text().empty() && !records[1][0].text().empty();
  for (std::size_t i = 1; i < first.size(); ++i) numbered = numbered && first[i].text() == std::to_string(i - 1);
  return numbered;
}

/// The lines in front of a table.
struct Preamble {
  std::size_t bytes = 0;
  Index lines = 0;
  char delimiter = 0;            // that Excel's line names
  std::string_view comment;      // the last line, if it is one
  std::size_t comment_text = 0;  // where what it says begins
};

Preamble preamble_of(std::string_view content) {
  constexpr std::string_view excel = "sep=";
  Preamble found;
  for (std::string_view rest = content; is_preamble(rest); rest = content.substr(found.bytes)) {
    const std::size_t end = std::min(rest.find('\n'), rest.size() - 1) + 1;
    std::string_view line = rest.substr(0, end);
    if (line.starts_with(excel) && line.size() > excel.size()) found.delimiter = line[excel.size()];
    line = line.substr(0, line.find_last_not_of("\r\n") + 1);
    found.comment = line.starts_with('#') ? without_comment_sign(line) : std::string_view();
    found.comment_text = found.bytes + (line.size() - found.comment.size());
    found.bytes += end;
    ++found.lines;
  }
  return found;
}

/// Returns whether the comment in front of the first record holds the names of its columns.
bool names_columns(std::string_view comment, const Records& records, const FoundFormat& format) {
  const Records names = sample(comment, format.delimiter);
  if (names.size() != 1 || records.empty() || names[0].size() != records[0].size()) return false;
  return std::none_of(names[0].begin(), names[0].end(),
                      [&](const Field& field) { return is_value(field, format.decimal); });
}

void check_format(const TableFormat& given) {
  if (given.delimiter != 0) check_delimiter(given.delimiter);
  require_argument(given.decimal == 0 || given.decimal == '.' || given.decimal == ',', "decimal",
                   std::string(1, given.decimal), "'.' or ','");
}

}  // namespace

bool is_preamble(std::string_view line) { return line.starts_with("sep=") || line.starts_with('#'); }

std::string_view without_comment_sign(std::string_view line) {
  const std::size_t begin = line.find_first_not_of("# \t");
  return begin == line.npos ? std::string_view() : line.substr(begin);
}

bool looks_like_table(std::string_view content) {
  constexpr std::size_t least_records = 3;
  constexpr double most_are_values = 50.0;
  const FoundFormat format = find_format(content, {});
  const Records records = sample(content.substr(format.skipped), format.delimiter);
  if (records.size() < least_records) return false;
  const Score found = score(records, format.delimiter);
  const bool one_column = found.columns == 1;
  // Texts have blanks, too, and lines of one word.
  const double least_values = one_column ? all_values : format.delimiter == ' ' ? most_are_values : 0.0;
  if (found.kind != (one_column ? 1 : 3) || found.values < least_values) return false;
  return std::all_of(records.begin() + 1, records.end(), [&](const auto& record) {
    return std::any_of(record.begin(), record.end(), [&](const Field& field) {
      double value = 0.0;
      return field.number(format.decimal, value) == std::errc{};
    });
  });
}

FoundFormat find_format(const TableColumns& columns, const TableFormat& given) {
  check_format(given);
  Records records = {columns.header()};
  for (std::vector<Field> fields; records.size() < sample_records && columns.read(records.size() - 1, fields);) {
    records.push_back(fields);
  }
  FoundFormat format{.header = given.header.value_or(true)};
  if (given.delimiter != 0) format.delimiter = given.delimiter;
  format.decimal = given.decimal != 0 ? given.decimal : find_decimal(records, format.delimiter);
  return format;
}

FoundFormat find_format(std::string_view content, const TableFormat& given) {
  check_format(given);
  FoundFormat format;
  if (content.starts_with("\xef\xbb\xbf")) format.skipped = 3;
  content.remove_prefix(format.skipped);
  const Preamble front = preamble_of(content);
  content.remove_prefix(front.bytes);
  const char named = front.delimiter;
  format.delimiter = given.delimiter != 0 ? given.delimiter : can_delimit(named) ? named : find_delimiter(content);
  const Records records = sample(content, format.delimiter);
  format.decimal = given.decimal != 0 ? given.decimal : find_decimal(records, format.delimiter);
  const bool commented = given.header.value_or(true) && !find_header(records, format.decimal) &&
                         names_columns(front.comment, records, format);
  format.header = commented || given.header.value_or(find_header(records, format.decimal));
  format.skipped += commented ? front.comment_text : front.bytes;
  format.first_line = front.lines + (commented ? 0 : 1);
  return format;
}

std::string delimiter_name(char delimiter) {
  return delimiter == '\t' ? "tab" : delimiter == ' ' ? "blank" : fmt::format("'{}'", delimiter);
}

std::string describe(const FoundFormat& format) {
  if (format.delimiter == ',' && format.decimal == '.' && format.header) return {};
  std::string text = fmt::format("separator {}, decimal '{}'", delimiter_name(format.delimiter), format.decimal);
  if (!format.header) text += "; no header: the columns are called column1, column2, ...";
  return text;
}

}  // namespace penstock::data
