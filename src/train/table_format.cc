#include "train/table_format.h"

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>
#include <vector>

#include "base/check.h"
#include "train/csv.h"
#include "train/dates.h"

namespace penstock::data {
namespace {

using Records = std::vector<std::vector<CsvField>>;

constexpr std::size_t sample_records = 50;
constexpr std::size_t sample_bytes = std::size_t{1} << 18;

/// The first records under this delimiter, up to a mistake in their form.
Records sample(std::string_view content, char delimiter) {
  if (content.size() > sample_bytes) content = content.substr(0, content.rfind('\n', sample_bytes) + 1);
  Records records;
  try {
    CsvReader reader(content, delimiter, "");
    std::vector<CsvField> fields;
    while (records.size() < sample_records && reader.next(fields)) records.push_back(fields);
  } catch (const Error&) {
    // What is wrong there is told by whoever reads the whole table.
  }
  return records;
}

template <class Visit>
void for_each_value(const Records& records, const Visit& visit) {
  for (std::size_t row = 1; row < records.size(); ++row) {
    for (const CsvField& field : records[row]) visit(field.text);
  }
}

/// A fraction such as "1,5" decides. Groups alone, as in "1,234", are taken for fractions where the delimiter is a
/// semicolon: programs write those where the comma starts a fraction.
char find_decimal(const Records& records, char delimiter) {
  std::size_t points = 0, commas = 0, groups = 0;
  const auto count = [&](const std::string& text) {
    const DecimalHint hint = decimal_hint(text);
    points += hint == DecimalHint::point ? 1 : 0;
    commas += hint == DecimalHint::comma ? 1 : 0;
    groups += hint == DecimalHint::comma_or_thousands ? 1 : 0;
  };
  for_each_value(records, count);
  if (records.size() == 1) {
    for (const CsvField& field : records[0]) count(field.text);
  }
  if (points == 0 && commas == 0 && delimiter == ';') return groups > 0 ? ',' : '.';
  return commas > points ? ',' : '.';
}

bool is_value(const std::string& text, char decimal) {
  double value = 0.0;
  return is_missing(text) || parse_boolean(text) || parse_date(text) ||
         parse_number(text, decimal, value) != std::errc::invalid_argument;
}

/// How well a delimiter explains the first records; more is better.
struct Score {
  int kind = 0;         // 3 several columns throughout, 2 in the first record at least, 1 one column throughout
  double values = 0.0;  // part of the fields that are numbers, dates and the like
  std::size_t columns = 0;

  bool operator>(const Score& other) const {
    return std::tie(kind, values, columns) > std::tie(other.kind, other.values, other.columns);
  }
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
  for_each_value(records, [&](const std::string& text) {
    ++fields;
    values += is_value(text, decimal) ? 1 : 0;
  });
  // To a hundredth: a column of notes must not outweigh the number of columns.
  if (fields > 0) result.values = static_cast<double>(100 * values / fields);
  return result;
}

char find_delimiter(std::string_view content) {
  char best = ',';
  std::optional<Score> best_score;
  for (const char delimiter : {',', ';', '\t', '|'}) {
    const Score found = score(sample(content, delimiter), delimiter);
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
  const auto is_number = [&](const CsvField& field) {
    double value = 0.0;
    return parse_number(field.text, decimal, value) == std::errc{};
  };
  if (!std::all_of(first.begin(), first.end(), [&](const auto& f) { return is_value(f.text, decimal); })) return true;
  if (std::none_of(first.begin(), first.end(), is_number)) return true;
  bool numbered = first.size() > 1 && first[0].text.empty() && !records[1][0].text.empty();
  for (std::size_t i = 1; i < first.size(); ++i) numbered = numbered && first[i].text == std::to_string(i - 1);
  return numbered;
}

}  // namespace

FoundFormat find_format(std::string_view content, const TableFormat& given) {
  if (given.delimiter != 0) check_delimiter(given.delimiter);
  require(given.decimal == 0 || given.decimal == '.' || given.decimal == ',', "decimal must be '.' or ',', not '{}'",
          given.decimal);
  FoundFormat format;
  constexpr std::string_view excel = "sep=";
  if (content.starts_with("\xef\xbb\xbf")) format.skipped = 3;
  char named = 0;
  if (content.substr(format.skipped).starts_with(excel)) {
    const std::size_t line_end = std::min(content.find('\n'), content.size() - 1);
    named = content.substr(format.skipped + excel.size()).empty() ? '\0' : content[format.skipped + excel.size()];
    format.skipped = line_end + 1;
    format.first_line = 2;
  }
  content.remove_prefix(format.skipped);
  format.delimiter = given.delimiter != 0 ? given.delimiter : can_delimit(named) ? named : find_delimiter(content);
  const Records records = sample(content, format.delimiter);
  format.decimal = given.decimal != 0 ? given.decimal : find_decimal(records, format.delimiter);
  format.header = given.header.value_or(find_header(records, format.decimal));
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
