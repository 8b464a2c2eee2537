#include "train/json_lines.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/check.h"
#include "base/quote.h"
#include "io/data_file.h"
#include "train/csv.h"

namespace penstock::data {

namespace {

/// The fields of one line, in their order, as a table writes them.
struct Row {
  std::vector<std::pair<std::string, std::string>> fields;
};

/// Hears of an object's keys and values as they are parsed, so that nothing deep is ever built. What it cannot take it
/// says in `problem`.
class RowReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit RowReader(Row& row) : row_(row) {}

  const std::string& problem() const { return problem_; }

  bool null() override { return value(""); }
  bool boolean(bool given) override { return value(given ? "true" : "false"); }
  bool number_integer(number_integer_t given) override { return value(fmt::format("{}", given)); }
  bool number_unsigned(number_unsigned_t given) override { return value(fmt::format("{}", given)); }
  bool number_float(number_float_t, const string_t& given) override { return value(given); }
  bool string(string_t& given) override { return value(given); }
  bool binary(binary_t&) override { return refuse("binary data"); }

  bool start_object(std::size_t) override {
    if (std::exchange(inside_, true)) return refuse_value("an object");
    return true;
  }
  bool end_object() override { return true; }
  bool start_array(std::size_t) override {
    return inside_ ? refuse_value("an array") : refuse("an array, not an object");
  }
  bool end_array() override { return true; }
  bool key(string_t& given) override {
    key_ = given;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    return refuse(fmt::format("no JSON from its byte {} on", position));
  }

 private:
  bool refuse(const std::string& what) {
    if (problem_.empty()) problem_ = what;
    return false;
  }
  bool refuse_value(const char* what) { return refuse(fmt::format("{} under {}, not a value", what, in_quotes(key_))); }

  bool value(std::string text) {
    if (!inside_) return refuse("a value, not an object");
    row_.fields.emplace_back(key_, std::move(text));
    return true;
  }

  Row& row_;
  std::string key_, problem_;
  bool inside_ = false;
};

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

bool is_json_lines(const std::string& path) {
  const std::string extension = io::data_extension(path);
  return extension == ".jsonl" || extension == ".ndjson";
}

std::string table_of_json_lines(std::string_view content, const std::string& source) {
  constexpr std::string_view mark = "\xef\xbb\xbf";
  if (content.starts_with(mark)) content.remove_prefix(mark.size());
  std::vector<Row> rows;
  std::vector<std::string> columns;
  std::map<std::string, std::size_t, std::less<>> positions;
  for (Index number = 1; !content.empty(); ++number) {
    const std::string_view line = content.substr(0, content.find('\n'));
    content.remove_prefix(std::min(content.size(), line.size() + 1));
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    RowReader reader(rows.emplace_back());
    if (!nlohmann::json::sax_parse(line, &reader))
      fail(ErrorCode::bad_input, "{}:{}: {}", source, number, reader.problem());
    for (const auto& [key, value] : rows.back().fields) {
      if (positions.try_emplace(key, columns.size()).second) columns.push_back(key);
    }
  }
  if (!rows.empty() && columns.empty()) fail(ErrorCode::bad_input, "{}: no line has a field", source);
  // Excel's way to say what parts the fields, so that nobody has to guess.
  std::string table = rows.empty() ? "" : "sep=,\n";
  if (!rows.empty()) add_row(table, {columns.begin(), columns.end()});
  for (const Row& row : rows) {
    std::vector<std::string_view> fields(columns.size());
    for (const auto& [key, value] : row.fields) fields[positions.find(key)->second] = value;
    add_row(table, fields);
  }
  return table;
}

}  // namespace penstock::data
