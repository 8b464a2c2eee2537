#include "data/table/json_table.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/quote.h"
#include "data/data_file.h"
#include "data/table/csv.h"
#include "penstock/stop.h"

namespace penstock::data {

namespace {

/// The fields of one object, in their order, as a table writes them.
using Row = std::vector<std::pair<std::string, std::string>>;

/// Hears of the keys and values of objects as they are parsed, so that nothing deep is ever built. What it cannot take
/// it says in `problem`.
class ObjectReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  /// `text`: what is parsed. `array`: its objects are the elements of an array.
  ObjectReader(std::string_view text, std::vector<Row>& rows, bool array)
      : text_(text), rows_(rows), array_ahead_(array) {}

  const std::string& problem() const { return problem_; }
  /// Returns whether the text ended, or stopped being JSON, within an object.
  bool inside() const { return inside_; }

  bool null() override { return value(""); }
  bool boolean(bool given) override { return value(given ? "true" : "false"); }
  bool number_integer(number_integer_t given) override { return value(fmt::format("{}", given)); }
  bool number_unsigned(number_unsigned_t given) override { return value(fmt::format("{}", given)); }
  bool number_float(number_float_t, const string_t& given) override { return value(given); }
  bool string(string_t& given) override { return value(given); }
  bool binary(binary_t&) override { return refuse("binary data"); }

  bool start_object(std::size_t) override {
    stop_if_asked();
    if (std::exchange(inside_, true)) return refuse_value("an object");
    rows_.emplace_back();
    return true;
  }
  bool end_object() override {
    inside_ = false;
    return true;
  }
  bool start_array(std::size_t) override {
    if (inside_) return refuse_value("an array");
    return std::exchange(array_ahead_, false) || refuse("an array, not an object");
  }
  bool end_array() override { return true; }
  bool key(string_t& given) override {
    key_ = given;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    return refuse(fmt::format("no JSON from its byte {} on{}", position, remedy(position)));
  }

 private:
  /// Returns what mends the mistakes that other programs make most often; empty for others.
  std::string remedy(std::size_t position) const {
    const std::string_view rest = text_.substr(std::min(text_.size(), std::max<std::size_t>(position, 1) - 1));
    for (const std::string_view name : {"NaN", "nan", "Infinity", "inf"}) {
      if (rest.starts_with(name)) return fmt::format("; JSON has no {}: write null", name);
    }
    return inside_ && rest.empty() && !array_ ? "; an object needs a line of its own, or all objects an array" : "";
  }
  bool refuse(const std::string& what) {
    if (problem_.empty()) problem_ = what;
    return false;
  }
  bool refuse_value(const char* what) {
    return refuse(
        fmt::format("{} under {}, not a value; each object is a row (pandas writes such files by to_json with "
                    "orient='records')",
                    what, in_quotes(key_)));
  }

  bool value(std::string text) {
    if (!inside_) return refuse("a value, not an object");
    rows_.back().emplace_back(key_, std::move(text));
    return true;
  }

  std::string_view text_;
  std::vector<Row>& rows_;
  std::string key_, problem_;
  bool inside_ = false, array_ahead_, array_ = array_ahead_;
};

constexpr std::string_view json_blanks = " \t\r\n";

std::vector<Row> objects_of_array(std::string_view content, const std::string& source, bool cut) {
  std::vector<Row> rows;
  ObjectReader reader(content, rows, true);
  if (nlohmann::json::sax_parse(content, &reader)) return rows;
  if (!cut) {
    const std::size_t number = rows.size() + (reader.inside() ? 0 : 1);
    fail(ErrorCode::bad_input, "{}: object {} of the array: {}", source, number, reader.problem());
  }
  if (reader.inside()) rows.pop_back();
  return rows;
}

std::vector<Row> objects_of_lines(std::string_view content, const std::string& source, bool cut) {
  if (cut) content = content.substr(0, content.rfind('\n') + 1);
  std::vector<Row> rows;
  for (Index number = 1; !content.empty(); ++number) {
    const std::string_view line = content.substr(0, content.find('\n'));
    content.remove_prefix(std::min(content.size(), line.size() + 1));
    if (line.find_first_not_of(json_blanks) == line.npos) continue;
    ObjectReader reader(line, rows, false);
    if (!nlohmann::json::sax_parse(line, &reader))
      fail(ErrorCode::bad_input, "{}:{}: {}", source, number, reader.problem());
  }
  return rows;
}

/// Two quotes for what is missing, so that a row of one column is no blank line.
void add_field(std::string& table, std::string_view text) {
  const bool plain =
      !text.empty() && text.find_first_of(",\"\r\n") == text.npos && text.front() != ' ' && text.back() != ' ';
  if (plain) table += text;
  if (!plain) append_quoted(text, table);
}

void add_row(std::string& table, const std::vector<std::string_view>& fields) {
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (i > 0) table += ',';
    add_field(table, fields[i]);
  }
  table += '\n';
}

}  // namespace

bool is_json_table(const std::string& path) {
  const std::string extension = io::data_extension(path);
  return extension == ".jsonl" || extension == ".ndjson" || extension == ".json";
}

std::string table_of_json(std::string_view content, const std::string& source, bool cut) {
  constexpr std::string_view mark = "\xef\xbb\xbf";
  if (content.starts_with(mark)) content.remove_prefix(mark.size());
  const std::size_t first = content.find_first_not_of(json_blanks);
  const bool array = first != content.npos && content[first] == '[';
  const std::vector<Row> rows = array ? objects_of_array(content, source, cut) : objects_of_lines(content, source, cut);
  std::vector<std::string> columns;
  std::map<std::string, std::size_t, std::less<>> positions;
  for (const Row& row : rows) {
    for (const auto& [key, value] : row) {
      if (positions.try_emplace(key, columns.size()).second) columns.push_back(key);
    }
  }
  if (!rows.empty() && columns.empty()) {
    fail(ErrorCode::bad_input, "{}: no {} has a field", source, array ? "object" : "line");
  }
  // Excel's way to say what parts the fields, so that nobody has to guess.
  std::string table = rows.empty() ? "" : "sep=,\n";
  if (!rows.empty()) add_row(table, {columns.begin(), columns.end()});
  std::vector<std::size_t> last_row(columns.size(), 0);  // counted from 1
  for (std::size_t number = 1; const Row& row : rows) {
    stop_if_asked();
    std::vector<std::string_view> fields(columns.size());
    for (const auto& [key, value] : row) {
      const std::size_t column = positions.find(key)->second;
      if (std::exchange(last_row[column], number) == number) {
        fail(ErrorCode::bad_input, "{}: object {} has two values of {}; leave one of them", source, number,
             in_quotes(key));
      }
      fields[column] = value;
    }
    add_row(table, fields);
    ++number;
  }
  return table;
}

}  // namespace penstock::data
